"""Token trees as parent arrays: each node's parent is an earlier node, or -1 for none."""

from collections.abc import Sequence

from backends.base.errors import ModelError


def depths(parents: Sequence[int]) -> list[int]:
    """Number of ancestors of each node."""
    above: list[int] = []
    for parent in parents:
        above.append(0 if parent < 0 else above[parent] + 1)
    return above


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """Nodes from a root down to this node, inclusive; none for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    path.reverse()
    return path


def count_leaves(parents: Sequence[int]) -> int:
    return len(parents) - len(set(parents) - {-1})


def height(parents: Sequence[int], top: int) -> int:
    """Number of nodes on the longest branch below a node, or below the root, -1."""
    below = {top: 0}
    for node, parent in enumerate(parents):
        if parent in below:
            below[node] = below[parent] + 1
    return max(below.values())


def is_tree(parents: Sequence[int]) -> bool:
    """Whether every parent precedes its children."""
    return all(-1 <= parent < node for node, parent in enumerate(parents))


def is_path(path: Sequence[int], parents: Sequence[int]) -> bool:
    """Whether nodes form a path downwards from a root."""
    return all(parents[node] == above for above, node in zip([-1, *path], path, strict=False))


def check_branches(parents: Sequence[int], most: int) -> None:
    """Refuse a tree with more leaves than the context runs. Raises ModelError: it has more."""
    leaves = count_leaves(parents)
    if leaves > most:
        raise ModelError(
            f"a tree of {leaves} branches cannot be run", f"the context runs {most} at most"
        )
