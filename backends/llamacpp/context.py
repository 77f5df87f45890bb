"""Context of llama.cpp: one token sequence with its KV cache, and others that share it."""

import ctypes
from collections.abc import Callable, Sequence
from weakref import WeakSet

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheState, Context, Logits, ModelError, SpecchatError
from backends.base.images import IMAGE_TOKENS
from backends.heads.hidden_states import FINAL, HiddenStates
from backends.llamacpp.running_state import RunningState
from backends.llamacpp.sequences import ABORTED, BLOCK, UNCHANGED, Cells, LlamaFork, LlamaSequence
from backends.llamacpp.tree_sequences import TreePass
from backends.llamacpp.vision import Chunk, HeldImages, Vision

GROUP = 4
"""Tokens that kernels process together; decoding/prefill.py has whole groups of them read."""

_MOST_FORKS = 16
"""So many leave trees most of their branches, whose numbers they take; more where cells of more
sequences were asked for."""

_ONE_LINE = "keeps a running state, which cannot follow several branches"
_ONE_STATE = "keeps a running state, which is that of one sequence"
_ONE_WINDOW = "sees only the last tokens in some layers, and others take the places of earlier ones"


class LlamaContext(LlamaSequence):
    """Context of a loaded model. Not to be used by two threads at once."""

    def __init__(
        self,
        cells: Cells,
        *,
        state: RunningState | None,
        state_bytes: int,
        draft_refusal: str,
        on_close: Callable[["LlamaContext"], None],
        has_window: bool = False,
        vision: Vision | None = None,
    ) -> None:
        """Take over an open context.

        state_bytes: of one copy of the state. has_window: whether layers see only the last tokens.
        """
        super().__init__(cells, 0)
        self.pointer: api.llama_context_p | None = cells.pointer
        self._on_close = on_close
        self.max_branches = self.max_logits
        self.state_bytes = state_bytes * (1 + state.depth) if state else 0
        self.saved_state_bytes = state_bytes
        self.draft_refusal = draft_refusal
        self.tree_refusal = "" if state is None else _ONE_LINE
        self.sequences_refusal = _ONE_STATE if state else _ONE_WINDOW if has_window else ""
        most = min(max(1 + _MOST_FORKS, cells.n_cells // cells.n_ctx), self.max_logits)
        self.max_sequences = 1 if self.sequences_refusal else most
        self._state = state
        self._images = HeldImages(vision) if vision else None
        if state is not None:
            state.position = self._position
        self._has_window = has_window
        self._restored = 0
        """Tokens of a restored state that lacks entries which none of its own tokens sees."""
        self._states: list[HiddenStates] = []
        self._readers: WeakSet[Context] = WeakSet()
        is_even = cells.is_on_processor and state is None and self.n_chunk >= BLOCK
        self.exact_batch = BLOCK if is_even else 0

    @property
    def free_cells(self) -> int:
        return self.cells.free

    def shared_after(self, length: int) -> int:
        heirs = (one.shared for one in self.cells.sequences if one.source is self)
        return max(length, self.shared, *heirs) - length

    @property
    def held(self) -> int:
        return super().held + (self._trees.n_nodes if self._trees else 0)

    @property
    def can_be_stopped(self) -> bool:
        return self._state is None or self._state.is_held(len(self.tokens))

    def fork(self, source: Context, length: int) -> Context:
        beginning = self._one_of(source).tokens[:length]
        assert len(beginning) == length
        numbers = {each.number for each in self.cells.sequences}
        if len(numbers) >= self.max_sequences:
            why = f"has {len(numbers)}, which is the most"
            raise ModelError("no further sequence fits", f"it {self.sequences_refusal or why}")
        if self._images is not None and max(beginning, default=0) >= IMAGE_TOKENS:
            raise ModelError("an image is not shared", "sequences have text alone in common")
        number = max(set(range(self.max_logits)) - numbers)
        if self._trees is not None and number < self._trees.n_branches:
            self._drop_tree()
        return LlamaFork(number, self._one_of(source), beginning)

    def forward_together(
        self, passes: Sequence[tuple[Context, Sequence[int]]], n_logits: Sequence[int] = ()
    ) -> list[Logits]:
        self._drop_tree()
        counts = n_logits or [len(tokens) for _, tokens in passes]
        given = [
            (self._one_of(context), tokens, count)
            for (context, tokens), count in zip(passes, counts, strict=True)
        ]
        assert len({one for one, *_ in given}) == len(given), "a sequence stands there twice"
        assert all(0 <= count <= len(tokens) > 0 for _, tokens, count in given)
        assert 0 < sum(len(tokens) for _, tokens, _ in given) <= self.n_chunk
        assert sum(counts) <= self.max_logits
        if self._ran(self.length) < self.length and any(one is self for one, *_ in given):
            raise ModelError("an image is held in part", "its other tokens come in a pass alone")
        # Heads read the first rows of a pass as those of this context.
        given.sort(key=lambda one: one[0] is not self)
        if error := self.cells.run(given):
            raise error
        rows, found, end = self.cells.rows(sum(counts)), dict[object, Logits](), 0
        for sequence, _, count in given:
            start, end = end, end + count
            found[sequence] = rows[start:end]
        return [found[context] for context, _ in passes]

    def _one_of(self, context: Context) -> LlamaSequence:
        assert isinstance(context, LlamaSequence), "it is of another engine"
        assert context in self.cells.sequences, "it is closed, or has other cells"
        return context

    @property
    def can_roll_back(self) -> bool:
        return self._state is None and not self._has_window  # a restored one goes back to nothing

    @property
    def max_rollback(self) -> int:
        return self.n_ctx if self._state is None else self._state.depth

    def rollback_to(self, length: int) -> int:
        length = min(length, len(self.tokens))
        if length < self._restored:
            return 0  # what lies before would see those entries
        if self._state is None:
            return length
        ran = self._ran(length)
        reached = self._state.rollback_to(ran, self._ran(len(self.tokens)))
        return length if reached == ran else reached

    def _ran(self, length: int) -> int:
        """How many of so many tokens the engine has run: all but those of an image in part."""
        return self._images.ran(length) if self._images else length

    def _position(self, length: int) -> int:
        """The engine's position after so many tokens."""
        return self._images.position(length) if self._images else length

    def _append(self, tokens: Sequence[int], n_logits: int) -> SpecchatError | None:
        start, images = len(self.tokens), self._images
        if images is None or (self._ran(start) == start and max(tokens) < IMAGE_TOKENS):
            return super()._append(tokens, n_logits)
        return self._run_with_images(images, tokens, n_logits)

    def passed(self, tokens: Sequence[int]) -> None:
        start = len(self.tokens)
        super().passed(tokens)
        for states in self._states:
            states.passed(start, len(tokens))
        if self._state is not None:
            self._state.passed(len(tokens))

    def _run_with_images(
        self, images: HeldImages, tokens: Sequence[int], n_logits: int
    ) -> SpecchatError | None:
        """Append tokens of which some are an image's; those of one in part wait for its others."""
        start = len(self.tokens)
        begun = self.tokens[self._ran(start) :]
        passes, error = images.divided(tokens, start, GROUP, self.exact_batch), None
        try:  # before the context is changed: it may be stopped
            encoded = [
                images.vision.rows(chunk) if chunk and upto - at == len(chunk.tokens) else None
                for at, upto, chunk in passes
            ]
        except SpecchatError as failure:
            images.cut(start)
            return failure
        del self.tokens[start - len(begun) :]
        given = [*begun, *tokens]
        for (at, upto, chunk), rows in zip(passes, encoded, strict=True):
            piece = given[at - start + len(begun) : upto - start + len(begun)]
            is_last = upto == start + len(tokens)
            if chunk is None:
                error = super()._append(piece, n_logits if is_last else 0)
            elif rows is not None:
                assert not (is_last and n_logits), "no text follows an image"
                error = self._run_image(chunk, rows)
            else:
                self.tokens.extend(piece)
            if error is not None:
                break
        if error is not None:
            self.undo(start - len(begun), ABORTED)
            if self._state is None or len(self.tokens) == start - len(begun):
                self.tokens[start - len(begun) :] = begun
            images.cut(len(self.tokens))
        return error

    def _run_image(self, chunk: Chunk, rows: Logits) -> SpecchatError | None:
        """Append all of an image, of which these are the rows; why that failed, or None."""
        pointer, start, error = self.cells.pointer, len(self.tokens), None
        places = chunk.places + np.int32(self._position(start))
        most = len(rows) if chunk.is_whole else self.n_chunk
        if most > api.llama_n_ubatch(pointer):  # else the engine ends the process
            return ModelError("the image is too large", f"it takes one pass of {most:,} tokens")
        api.llama_set_causal_attn(pointer, not chunk.is_whole)
        for at in range(0, len(rows), most):
            part = np.ascontiguousarray(rows[at : at + most])
            positions = np.ascontiguousarray(places[:, at : at + most])
            flags = np.zeros(len(part), np.int8)
            batch = api.llama_batch(
                n_tokens=len(part),
                embd=part.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                pos=positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
                logits=flags.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
            )
            _, error = self.cells.decode(
                lambda batch=batch: api.llama_decode(pointer, batch),
                is_watched=self.can_be_stopped,
            )
            if error is not None:
                break
            if self._state is not None:
                self._state.passed(len(part))
        api.llama_set_causal_attn(pointer, True)
        if error is None:
            self.tokens.extend(chunk.tokens)
            for states in self._states:
                states.begin(len(self.tokens))  # what a head would read is not kept of rows
        return error

    def undo(self, length: int, status: int) -> None:
        """Remove what a failed pass left behind; a running state goes back to a checkpoint."""
        if self._state is None:
            super().undo(length, status)
        elif status not in UNCHANGED:
            self._forget_after(self._state.recover(length))

    def _new_trees(self) -> TreePass:
        return TreePass(self.cells.memory, self.max_logits, self.max_logits)

    def _run_nodes(self, tree: TreePass, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        pointer, error = self.cells.pointer, self.cells.shortage(len(tokens))
        if error is None:
            _, error = self.cells.decode(
                lambda: tree.decode(pointer, tokens, parents), is_whole=True
            )
        if error is not None:
            self._drop_tree()
            raise error
        for states in self._states:
            states.passed_nodes(len(tokens))
        return self.cells.rows(len(tokens))

    def commit(self, path: Sequence[int]) -> None:
        assert self._trees is not None, "no tree was run"
        for states in self._states:
            states.committed(len(self.tokens), path)
        self.tokens.extend(self._trees.keep(path))

    def _forget_after(self, length: int) -> None:
        super()._forget_after(length)
        if self._images is not None:
            self._images.cut(length)
        self._restored = min(self._restored, length)
        for states in self._states:
            states.cut(length)

    def add_states(self, states: HiddenStates) -> None:
        """Let passes leave hidden states for a head, from the next one on."""
        states.begin(len(self.tokens))
        self._states.append(states)
        self.cells.leaves_final = FINAL in self.read_layers

    def remove_states(self, states: HiddenStates) -> bool:
        """Leave them no longer; whether another head still reads what leaves the last layer."""
        self._states.remove(states)
        self.cells.leaves_final = FINAL in self.read_layers
        return any(not each.layers for each in self._states)

    @property
    def read_layers(self) -> frozenset[int]:
        return frozenset(layer for states in self._states for layer in states.layers)

    def _go_back(self, length: int) -> int:
        """Let the engine go back; the number of tokens that it holds then.

        Of an image that is cut it holds nothing.
        """
        ran, held = self._ran(length), len(self.tokens)
        if ran == (before := self._ran(held)):
            return length
        if self._state is not None:
            reached = self._state.go_back(ran, before)
            return {ran: length, before: held}.get(reached, reached)
        return length if self._remove(ran) else held

    def checkpoint(self, *, is_brief: bool = False) -> None:
        length = len(self.tokens)
        if self._state is not None and self._ran(length) == length:
            self._state.checkpoint(length, is_brief=is_brief)

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        self.truncate(0)
        if self._images is not None:
            self._images.restored(tokens)
        try:
            super().restore(tokens, state)
        except ModelError:
            if self._images is not None:
                self._images.cut(0)
            raise
        for states in self._states:
            states.begin(len(tokens))
        self._restored = len(tokens) if self._has_window else 0

    def close_with(self, reader: Context) -> None:
        """Close a head's context before this one, which it reads or points to."""
        self._readers.add(reader)

    def close(self) -> None:
        if self.pointer is None:
            return
        for reader in list(self._readers):
            reader.close()
        if self._trees is not None:
            self._trees.close()
        self.cells.close()
        self.pointer = None
        self._on_close(self)
