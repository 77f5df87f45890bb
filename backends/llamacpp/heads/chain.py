"""Heads that draft token by token, each from the token and the state before it."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Logits, ModelError, check_room, check_truncation
from backends.heads.head import ChainHead
from backends.heads.hidden_states import HiddenStates, Rows
from backends.llamacpp.heads.opening import (
    Opening,
    RowBatch,
    TokenHead,
    check,
    choose_layer,
    decode,
    hidden,
)
from backends.llamacpp.tree_sequences import TreeContext, TreePass


class OneLayer:
    """Passes over tokens with the state before each: the same layers take all of them."""

    def __init__(self, pointer: api.llama_context_p, batch: RowBatch) -> None:
        self._pointer = pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
        self._batch = batch

    def run(
        self, start: int, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool
    ) -> int:
        """Run tokens at positions from start on, after which all leave logits or none does.

        is_own: whether the row is the head's own state after a drafted token. Returns how many
        tokens the last pass had, of which these are the last.

        Raises:
            ModelError: the engine failed; forget tells what is left.
        """
        del is_own
        decode(self._pointer, self._batch.filled(start, tokens, rows, outputs=outputs))
        return len(tokens)

    def forget(self, length: int) -> int:
        """Forget positions from length on; the number of positions that are left."""
        api.llama_memory_seq_rm(self._memory, 0, length, -1)
        return length


class SeveralLayers(OneLayer):
    """The first layer predicts what follows the text, the second what follows its token, and so on.

    Each has entries of its own at every position, made from the same tokens and states: of the
    model as far as the text goes, then of the layers that drafted. A layer reads what it lacks when
    its turn comes, or once that fills half a pass. The last layer drafts all further tokens, for
    which there is none. Cells are shared: a layer's entries stay where they are while another's
    are made at the same positions, as the engine fills the same cells again.

    chain_heads in common/speculative.cpp of llama-cpp-python 0.3.36, where each layer reads at
    every pass, and drafts are no longer than there are layers.
    """

    def __init__(
        self, pointer: api.llama_context_p, batch: RowBatch, layers: int, most: int
    ) -> None:
        """most: tokens of a pass."""
        super().__init__(pointer, batch)
        self._most = most
        self._ends = [0] * layers
        """Positions up to which each layer has entries."""
        self._first = 0
        """Position of the first token kept: none of the layers lacks an earlier one."""
        self._tokens: list[int] = []
        self._rows: list[Rows] = []
        self._text = 0
        """Positions of the text, after which tokens are drafted."""
        self._lost: int | None = None
        """First position that a failed pass took from all layers."""

    def run(
        self, start: int, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool
    ) -> int:
        self._append(start, tokens, rows)
        if is_own:
            turn = min(1 + start - self._text, len(self._ends) - 1)
        else:
            turn, self._text = 0, start + len(tokens)
            self._read_late()
        count = self._catch_up(turn, outputs=outputs)
        self._release()
        return count

    @property
    def _end(self) -> int:
        return self._first + len(self._tokens)

    def _append(self, start: int, tokens: Sequence[int], rows: Rows) -> None:
        if start != self._end:  # positions without states were left out
            self._first, self._ends = start, [start] * len(self._ends)
            self._tokens.clear()
            self._rows.clear()
        self._tokens.extend(tokens)
        self._rows.extend(row.copy() for row in rows)

    def _read_late(self) -> None:
        """Run layers whose turn has not come for long, so that little is kept for them."""
        for layer in range(1, len(self._ends)):
            if 2 * (self._end - self._ends[layer]) >= self._most:
                self._catch_up(layer, outputs=False)

    def _catch_up(self, layer: int, *, outputs: bool) -> int:
        """Run a layer over what it lacks; how many tokens the last pass had."""
        count = 0
        api.llama_memory_seq_rm(self._memory, 0, self._ends[layer], -1)
        choose_layer(self._pointer, layer)
        try:
            while self._ends[layer] < self._end:
                count = self._pass(layer, outputs=outputs)
        except ModelError:
            self._lost = self._ends[layer]
            raise
        finally:
            choose_layer(self._pointer, 0)
        return count

    def _pass(self, layer: int, *, outputs: bool) -> int:
        start = self._ends[layer]
        end = min(start + self._most, self._end)
        read = slice(start - self._first, end - self._first)
        rows = np.vstack(self._rows[read])
        is_last = outputs and end == self._end
        decode(self._pointer, self._batch.filled(start, self._tokens[read], rows, outputs=is_last))
        self._ends[layer] = end
        return end - start

    def _release(self) -> None:
        read = min(self._ends) - self._first
        del self._tokens[:read], self._rows[:read]
        self._first += read

    def forget(self, length: int) -> int:
        left = length if self._lost is None else min(length, self._lost)
        self._lost = None
        super().forget(left)
        self._ends = [min(end, left) for end in self._ends]
        self._text = min(self._text, left)
        kept = max(left - self._first, 0)
        del self._tokens[kept:], self._rows[kept:]
        self._first = min(self._first, left)
        return left


Transform = Callable[[Rows], Rows]
"""Makes what a head reads from what its model leaves."""

_LINES = "was opened to draft lines only, as its model cannot verify trees"
_IN_TURN = "drafts lines only: its layers take turns, each with entries of its own"


class ChainContext(TreeContext, ChainHead, TokenHead):
    def __init__(
        self,
        at: Opening,
        pointer: api.llama_context_p,
        states: HiddenStates,
        *,
        width: int,
        max_branches: int = 1,
        layers: int = 1,
        transform: Transform = lambda rows: rows,
        skips_first: bool = False,
        selects_rows: bool = True,
    ) -> None:
        """Take over an open context whose passes leave hidden states of the given width.

        max_branches: sequences it was opened with. layers: that take turns, of which several draft
        lines only. transform: of rows before the head reads them. selects_rows: whether logits that
        nothing asks for are not computed.
        """
        batch = RowBatch(at.n_chunk, width)
        self._passes = (
            OneLayer(pointer, batch)
            if layers == 1
            else SeveralLayers(pointer, batch, layers, at.n_chunk)
        )
        self._width = width
        self._transform = transform
        self._skips_first = skips_first
        self._selects_rows = selects_rows
        self.max_branches = max_branches
        self.can_verify_tree = max_branches > 1
        self.tree_refusal = "" if self.can_verify_tree else _LINES if layers == 1 else _IN_TURN
        self._nodes: Rows = np.empty((0, width), np.float32)
        """What the nodes of an uncommitted tree leave, after what its roots read."""
        super().__init__(at, pointer, states)

    def rollback_to(self, length: int) -> int:
        """At most what the model has passed: the head's own state after more is not kept.

        None where states are unknown from there on: entries cannot have a gap.
        """
        length = self._passed(length)
        return 0 if length < self._states.first and self._has_entries else length

    @property
    def _has_entries(self) -> bool:
        return api.llama_memory_seq_pos_max(self._memory, 0) >= 0

    def _has_entries_before(self, start: int) -> bool:
        del start
        return self._has_entries

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._drop_tree()
        count, start = len(tokens), len(self.tokens)
        assert 0 < count <= self.n_chunk
        assert 0 <= n_logits <= count
        check_room(self, count)
        try:
            return self._read(tokens, start, count - n_logits)
        except ModelError:
            self._forget(start)
            raise

    def _read(self, tokens: Sequence[int], start: int, first_logits: int) -> Logits:
        """Append tokens; logits after those from first_logits on."""
        if skipped := self._without_states(start, first_logits):
            self.tokens.extend(tokens[:skipped])
            self._true = start + skipped
            return self._read(tokens[skipped:], start + skipped, first_logits - skipped)
        count = len(tokens)
        is_true = self._true == start and (self._has_entries or start >= self._first_entry)
        known = self._known(start, count)
        silent = min(first_logits, known if known == count else max(known - 1, 0))
        if silent < count and not self._selects_rows:
            silent = 0  # one pass with all logits is cheaper than two
        if silent:
            self._pass(tokens[:silent], self._before(start, silent), outputs=False)
        rows: list[Logits] = []
        if silent < known:
            before = self._before(start + silent, known - silent)
            rows.append(self._pass(tokens[silent:known], before, outputs=True))
        if is_true:
            self._true += known
        for token in tokens[known:]:
            rows = [row.copy() for row in rows]  # the next pass overwrites them
            rows.append(self._pass([token], self._own_state(), outputs=True, is_own=True))
        if first_logits == count:
            return np.empty((0, self._n_vocab), np.float32)
        return (rows[0] if len(rows) == 1 else np.vstack(rows))[first_logits - count :]

    def _before(self, start: int, count: int) -> Rows:
        return self._transform(self._states.before(start, count))

    def _pass(
        self, tokens: Sequence[int], rows: Rows, *, outputs: bool, is_own: bool = False
    ) -> Logits:
        """Run tokens with the states before them; all leave logits, or none does."""
        start = len(self.tokens)
        count = self._passes.run(start, tokens, rows, outputs=outputs, is_own=is_own)
        self.tokens.extend(tokens)
        if not outputs:
            return np.empty((0, self._n_vocab), np.float32)
        self._last = hidden(self.pointer, count, self._width)[-1:].copy()
        return self._logits(count)[-len(tokens) :]

    def _forget(self, length: int) -> None:
        length = self._passes.forget(length)
        del self.tokens[length:]
        self._true = min(self._true, length)
        self._last = None

    def truncate(self, length: int) -> None:
        self._drop_tree()
        check_truncation(length, len(self.tokens))
        if length < len(self.tokens):
            self._forget(length)

    def _new_trees(self) -> TreePass:
        trees = TreePass(self._memory, self.n_chunk, self.max_branches, self._width)
        self._resources.callback(trees.close)
        return trees

    def _run_nodes(self, tree: TreePass, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Run nodes level by level: each reads what its parent leaves."""
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        first, held, count = 0, len(tree.parents), len(tokens)
        if not held:
            start = len(self.tokens)
            self._nodes = self._before(start, 1) if self._known(start, 1) else self._own_state()
        rows: Logits = np.empty((0, self._n_vocab), np.float32)
        while first < len(tokens):
            end = next(
                (node for node in range(first, len(tokens)) if parents[node] >= held + first),
                len(tokens),
            )
            level = self._run_level(tree, tokens[first:end], parents[first:end])
            if end - first == count:
                return level
            if not first:
                rows = np.empty((count, self._n_vocab), np.float32)
            rows[first:end] = level  # the next pass overwrites it
            first = end
        return rows

    def _run_level(self, tree: TreePass, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        before = self._nodes[np.asarray(parents) + 1]
        try:
            check(tree.decode(self.pointer, tokens, parents, before))
        except ModelError:
            self._drop_tree()
            raise
        self._nodes = np.vstack([self._nodes, hidden(self.pointer, len(tokens), self._width)])
        return self._logits(len(tokens))

    def commit(self, path: Sequence[int]) -> None:
        assert self._trees is not None, "no tree was run"
        self.tokens.extend(self._trees.keep(path))
        if path:
            self._last = self._nodes[path[-1] + 1][np.newaxis]
