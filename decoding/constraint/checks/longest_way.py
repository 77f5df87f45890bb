"""The longest way through a graph whose nodes may lead to each other."""

from collections.abc import Iterator, Sequence


def longest_way(edges: Sequence[Sequence[int]], weights: Sequence[int]) -> int:
    """The most that the nodes on a way from node 0 weigh together, or more than that.

    edges: the nodes that each leads to. Those that lead to each other all count, in whichever order
    they are followed.
    """
    longest = [0] * len(edges)
    for group in groups(edges):
        beyond = max((longest[other] for node in group for other in edges[node]), default=0)
        weight = sum(weights[node] for node in group)
        for node in group:
            longest[node] = weight + beyond
    return longest[0]


def groups(edges: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Nodes that lead to each other, in groups; each group after those that it leads to.

    Tarjan's algorithm, without recursion.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    path: list[tuple[int, Iterator[int]]] = []

    def enter(node: int) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        waiting.add(node)
        path.append((node, iter(edges[node])))

    enter(0)
    while path:
        node, following = path[-1]
        for other in following:
            if other not in order:
                enter(other)
                break
            if other in waiting:
                lowest[node] = min(lowest[node], order[other])
        else:
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
            if lowest[node] == order[node]:
                group = [stack.pop()]
                while group[-1] != node:
                    group.append(stack.pop())
                waiting.difference_update(group)
                yield group
