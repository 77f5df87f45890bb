"""Passes of llama.cpp over a tree of tokens, in which every leaf is a sequence.

A node belongs to the sequences of all leaves below it, and so sees what is above it alone. The
sequences share the cells of the context's own, which is number 0. The first child of a node goes on
with its sequence; each further one gets a new sequence, which begins with what is above it.
"""

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base.parent_array import is_path, is_tree

_OWN = 0
_ALL = -1


class TreePass:
    """The batch for the trees of one context, one of which may wait for keep."""

    def __init__(self, memory: api.llama_memory_t, most_nodes: int, most_leaves: int) -> None:
        self._memory = memory
        self._batch = api.llama_batch_init(most_nodes, 0, most_leaves)
        self._start = 0
        self._tokens: list[int] = []
        self.parents: list[int] = []
        """Of the nodes run so far."""
        self._ends: list[int] = []
        """Of each node how many tokens a text has that ends with it."""
        self._sequences: list[int] = []
        """Of each node one sequence that goes through it."""

    @property
    def is_pending(self) -> bool:
        """Whether there is a tree of which nothing was kept or dropped yet."""
        return len(self._tokens) > 0

    def begin(self, start: int) -> None:
        """Let the next nodes be those of a new tree, after start tokens."""
        self._start = start
        for one in (self._tokens, self.parents, self._ends, self._sequences):
            one.clear()

    def decode(
        self, pointer: api.llama_context_p, tokens: Sequence[int], parents: Sequence[int]
    ) -> int:
        """Run nodes and add them to the tree; gives the engine's status, 0 where it went well."""
        assert is_tree([*self.parents, *parents])
        first, count = len(self._tokens), len(tokens)
        self._tokens.extend(tokens)
        for parent in parents:
            self._append(parent)
        batch = self._batch
        batch.n_tokens = count
        np.ctypeslib.as_array(batch.token, shape=(count,))[:] = tokens
        np.ctypeslib.as_array(batch.pos, shape=(count,))[:] = [
            end - 1 for end in self._ends[first:]
        ]
        np.ctypeslib.as_array(batch.logits, shape=(count,))[:] = 1
        for node, sequences in enumerate(self._sequences_below(first)):
            batch.n_seq_id[node] = len(sequences)
            for place, sequence in enumerate(sequences):
                batch.seq_id[node][place] = sequence
        return api.llama_decode(pointer, batch)

    def _append(self, parent: int) -> None:
        is_root = parent < 0
        end, sequence = (
            (self._start, _OWN) if is_root else (self._ends[parent], self._sequences[parent])
        )
        if parent in self.parents:
            above, sequence = sequence, 1 + max(self._sequences)
            api.llama_memory_seq_cp(self._memory, above, sequence, 0, end)
        self.parents.append(parent)
        self._ends.append(end + 1)
        self._sequences.append(sequence)

    def _sequences_below(self, first: int) -> list[set[int]]:
        """Of the nodes from the first on, the sequences of all leaves that are reached by them."""
        found = [{sequence} for sequence in self._sequences[first:]]
        for node in reversed(range(len(found))):
            parent = self.parents[first + node] - first
            if parent >= 0:
                found[parent] |= found[node]
        return found

    def keep(self, path: Sequence[int]) -> list[int]:
        """Make the nodes of a path the context's own, and drop every other; gives their tokens."""
        assert self.is_pending, "no tree was run"
        assert is_path(path, self.parents)
        kept = [self._tokens[node] for node in path]
        sequence = self._sequences[path[-1]] if path else _OWN
        api.llama_memory_seq_rm(self._memory, sequence, self._start + len(path), _ALL)
        api.llama_memory_seq_keep(self._memory, sequence)
        if sequence != _OWN:
            api.llama_memory_seq_cp(self._memory, sequence, _OWN, _ALL, _ALL)
            api.llama_memory_seq_rm(self._memory, sequence, _ALL, _ALL)
        self._tokens.clear()
        return kept

    def close(self) -> None:
        """Free the batch."""
        api.llama_batch_free(self._batch)
