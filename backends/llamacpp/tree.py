"""A pass of llama.cpp over a tree of tokens: one batch, in which every leaf is a sequence.

A node belongs to the sequences of all leaves below it, and so sees what is above it alone. The
sequences share the cells of the context's own, which is number 0.
"""

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base.tree import depths, is_path, leaves_below

_OWN = 0
_ALL = -1


class TreePass:
    """The batch for the trees of one context, one of which may wait for keep."""

    def __init__(self, memory: api.llama_memory_t, most_nodes: int, most_leaves: int) -> None:
        self._memory = memory
        self._batch = api.llama_batch_init(most_nodes, 0, most_leaves)
        self._tokens: Sequence[int] = ()
        self._parents: Sequence[int] = ()
        self._start = 0

    @property
    def is_pending(self) -> bool:
        """Whether there is a tree of which nothing was kept or dropped yet."""
        return len(self._tokens) > 0

    def decode(
        self,
        pointer: api.llama_context_p,
        tokens: Sequence[int],
        parents: Sequence[int],
        start: int,
    ) -> int:
        """Run a tree after start tokens; gives the engine's status, 0 where it went well."""
        self._tokens, self._parents, self._start = tokens, parents, start
        below = leaves_below(parents)
        for leaf in range(1, 1 + max(map(max, below))):
            api.llama_memory_seq_cp(self._memory, _OWN, leaf, _ALL, _ALL)
        batch, count = self._batch, len(tokens)
        batch.n_tokens = count
        np.ctypeslib.as_array(batch.token, shape=(count,))[:] = tokens
        positions = [start + depth for depth in depths(parents)]
        np.ctypeslib.as_array(batch.pos, shape=(count,))[:] = positions
        np.ctypeslib.as_array(batch.logits, shape=(count,))[:] = 1
        for node, leaves in enumerate(below):
            batch.n_seq_id[node] = len(leaves)
            for place, leaf in enumerate(leaves):
                batch.seq_id[node][place] = leaf
        return api.llama_decode(pointer, batch)

    def keep(self, path: Sequence[int]) -> list[int]:
        """Make the nodes of a path the context's own, and drop every other; gives their tokens."""
        assert self.is_pending, "no tree was run"
        assert is_path(path, self._parents)
        kept = [self._tokens[node] for node in path]
        leaf = leaves_below(self._parents)[path[-1]][0] if path else _OWN
        api.llama_memory_seq_rm(self._memory, leaf, self._start + len(path), _ALL)
        api.llama_memory_seq_keep(self._memory, leaf)
        if leaf != _OWN:
            api.llama_memory_seq_cp(self._memory, leaf, _OWN, _ALL, _ALL)
            api.llama_memory_seq_rm(self._memory, leaf, _ALL, _ALL)
        self._tokens = self._parents = ()
        return kept

    def close(self) -> None:
        """Free the batch."""
        api.llama_batch_free(self._batch)
