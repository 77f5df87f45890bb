"""The shape of a tree of tokens: each node's parent is an earlier node, or -1 for none."""

from collections.abc import Sequence


def depths(parents: Sequence[int]) -> list[int]:
    """How many nodes are above each."""
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def leaves_below(parents: Sequence[int]) -> list[list[int]]:
    """The leaves that are reached through each node, numbered from 0 in the order of nodes."""
    found: list[list[int]] = [[] for _ in parents]
    inner = set(parents)
    leaves = [node for node in range(len(parents)) if node not in inner]
    for number, leaf in enumerate(leaves):
        for node in path_to(leaf, parents):
            found[node].append(number)
    return found


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """The nodes from one without a parent down to this one; none for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    path.reverse()
    return path


def count_leaves(parents: Sequence[int]) -> int:
    """How many nodes have no child."""
    return len(parents) - len(set(parents) - {-1})


def is_tree(parents: Sequence[int]) -> bool:
    """Whether every parent comes before its children."""
    return all(-1 <= parent < node for node, parent in enumerate(parents))


def is_path(path: Sequence[int], parents: Sequence[int]) -> bool:
    """Whether nodes follow one another downwards, from one without a parent."""
    return all(parents[node] == above for above, node in zip([-1, *path], path, strict=False))
