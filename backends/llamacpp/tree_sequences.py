"""Passes of llama.cpp over a token tree, in which every leaf is a sequence.

A node belongs to the sequences of all leaves below it, and so attends only to its ancestors. The
sequences share the cells of the context's own sequence, number 0. The first child of a node
continues its sequence; each further child gets a new one, which starts as a copy of its ancestors,
with the next number: those of sequences beside the context are above them.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Logits, ModelError, check_room
from backends.base.parent_array import check_branches, is_path, is_tree
from backends.heads.hidden_states import Rows

_OWN = 0
_ALL = -1


class TreePass:
    """Batch for the trees of a context, one of which may be uncommitted."""

    def __init__(
        self, memory: api.llama_memory_t, most_nodes: int, most_leaves: int, width: int = 0
    ) -> None:
        """width: of the row that each node comes with, 0 for tokens alone."""
        self._memory = memory
        self._batch: Any = api.llama_batch_init(most_nodes, 0, most_leaves)
        self._rows = np.empty((most_nodes, width), np.float32)
        if width:
            self._batch.embd = self._rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._start = 0
        self._tokens: list[int] = []
        self.parents: list[int] = []
        """Parents of the nodes run so far."""
        self._ends: list[int] = []
        """Position of each node, plus one."""
        self._sequences: list[int] = []
        """One sequence through each node."""

    @property
    def n_nodes(self) -> int:
        """Nodes of the uncommitted tree; 0 if there is none."""
        return len(self._tokens)

    @property
    def n_branches(self) -> int:
        """Sequences of the uncommitted tree, those with the lowest numbers."""
        return 1 + max(self._sequences) if self._tokens else 0

    def begin(self, start: int) -> None:
        self._start = start
        for nodes in (self._tokens, self.parents, self._ends, self._sequences):
            nodes.clear()

    def decode(
        self,
        pointer: api.llama_context_p,
        tokens: Sequence[int],
        parents: Sequence[int],
        rows: Rows | None = None,
    ) -> int:
        """Run nodes and add them to the tree; the engine's status, 0 on success."""
        assert is_tree([*self.parents, *parents])
        first, count = len(self._tokens), len(tokens)
        self._tokens.extend(tokens)
        for parent in parents:
            self._append(parent)
        batch = self._batch
        batch.n_tokens = count
        if rows is not None:
            self._rows[:count] = rows
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
        """Sequences of all leaves below each node from first on."""
        below = [{sequence} for sequence in self._sequences[first:]]
        for node in reversed(range(len(below))):
            parent = self.parents[first + node] - first
            if parent >= 0:
                below[parent] |= below[node]
        return below

    def keep(self, path: Sequence[int]) -> list[int]:
        """Keep a path in the context's own sequence and drop the other nodes; the kept tokens."""
        assert self.n_nodes, "no tree was run"
        assert is_path(path, self.parents)
        kept = [self._tokens[node] for node in path]
        sequence = self._sequences[path[-1]] if path else _OWN
        if sequence != _OWN:
            api.llama_memory_seq_rm(self._memory, _OWN, self._start, _ALL)
            api.llama_memory_seq_cp(self._memory, sequence, _OWN, self._start, _ALL)
        api.llama_memory_seq_rm(self._memory, _OWN, self._start + len(path), _ALL)
        for branch in range(1, 1 + max(self._sequences)):
            api.llama_memory_seq_rm(self._memory, branch, _ALL, _ALL)
        self._tokens.clear()
        return kept

    def close(self) -> None:
        self._batch.embd = None  # these rows are not the engine's
        api.llama_batch_free(self._batch)


class TreeContext:
    """A context that runs trees, one of which may be uncommitted."""

    n_ctx: int
    tokens: list[int]
    max_logits: int
    max_branches: int
    tree_refusal: str
    _trees: TreePass | None = None

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._drop_tree()
        assert not self.tree_refusal, self.tree_refusal
        check_branches(parents, self.max_branches)
        check_room(self, len(tokens))
        if self._trees is None:
            self._trees = self._new_trees()
        self._trees.begin(self._position(len(self.tokens)))
        return self._run_nodes(self._trees, tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        tree = self._trees
        assert tree is not None, "no tree was run"
        assert tree.n_nodes, "no tree was run"
        try:
            check_branches([*tree.parents, *parents], self.max_branches)
            check_room(self, len(tree.parents) + len(tokens))
        except ModelError:
            self._drop_tree()
            raise
        return self._run_nodes(tree, tokens, parents)

    def _drop_tree(self) -> None:
        if self._trees is not None and self._trees.n_nodes:
            self.commit(())

    def _position(self, length: int) -> int:
        return length

    def commit(self, path: Sequence[int]) -> None:
        raise NotImplementedError

    def _new_trees(self) -> TreePass:
        raise NotImplementedError

    def _run_nodes(self, tree: TreePass, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        raise NotImplementedError
