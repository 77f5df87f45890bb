"""Operations that llama.cpp has room for in the graph of a pass, which take memory."""

from dataclasses import dataclass

from backends.files.gguf_header import GgufHeader

_SCANNING = frozenset({
    "bailingmoe3", "deepseek4", "hy_v4", "kimi-linear", "minimax-01", "minimax-m3", "nanbeige",
    "qwen35", "qwen35moe", "qwen3next", "qwen4exp",
})  # fmt: skip
"""Architectures whose graphs have more operations the more tokens a pass has."""


@dataclass(frozen=True, slots=True)
class GraphSize:
    """Operations of a graph: so many for each token of the longest pass, but least in any case."""

    least: int = 0
    per_token: int = 0

    def operations(self, most_tokens: int) -> int:
        """Operations in the graph of a pass over at most so many tokens."""
        return max(self.least, self.per_token * most_tokens)


NO_GRAPH = GraphSize()


def graph_size(header: GgufHeader, n_tensors: int) -> GraphSize:
    """Size of the graphs of a GGUF model, which has n_tensors in all its files.

    (graph_max_nodes of src/llama-context.cpp.)
    """
    if header.architecture in _SCANNING:
        return GraphSize(32 * n_tensors, 40)
    return GraphSize(max(1024, 8 * n_tensors))
