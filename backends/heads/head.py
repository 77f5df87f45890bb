"""Heads and their contexts, which draft beside that of a model: what those of engines share."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

import numpy as np

from backends.base import (
    Block,
    Context,
    DeviceSampling,
    Logits,
    Model,
    ModelError,
    ModelInfo,
    Rollback,
    SpecchatError,
    Tokenizer,
    check_room,
    check_truncation,
)
from backends.base.line_context import LineContext
from backends.heads.hidden_states import HiddenStates, Rows


class LoadedLayers:
    """Loaded layers of a head, and their open contexts. To be closed before its model."""

    shortage = ""

    def __init__(self, target: Model, context: Context, info: ModelInfo) -> None:
        """For a context of a model, beside which contexts open."""
        self._context = context
        self._contexts: MutableMapping[object, Context] = {}
        self.tokenizer: Tokenizer = target.tokenizer
        self.info = info

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> Context:  # noqa: ARG002
        """A context beside that of the model, and of its size: n_ctx is the least."""
        assert drafts, "a head does nothing else"
        assert n_ctx <= self._context.n_ctx
        return self.open_beside(self._context)

    def open_beside(self, context: Context) -> Context:
        raise NotImplementedError

    def close(self) -> None:
        for context in list(self._contexts.values()):
            context.close()


def head_info(target: ModelInfo, **own: Any) -> ModelInfo:
    """Facts of a head for a model: its own, and what it has of the model."""
    return ModelInfo(
        n_vocab=target.n_vocab,
        context_limit=target.context_limit,
        rollback=Rollback.ANY,
        backend=target.backend,
        engine=target.engine,
        device=target.device,
        threads=target.threads,
        **own,
    )


class HeadContext(LineContext):
    """Most run lines alone, and sample on no device; passes are too short to be stopped."""

    device_sampling: DeviceSampling | None = None
    can_roll_back = False
    tree_refusal = "drafts lines only: the other branches of a tree would need states of their own"
    not_copied = "it belongs to its model's context"


class ChainHead(HeadContext):
    """Reads a token and the hidden state of the position before it, and predicts the next token.

    Hidden states are the model's own as far as it has passed; for drafted tokens they are the
    head's. What was computed from the head's is not kept when the text goes on: only lengths whose
    entries come from the model's can be reached. Positions without any state are left out.
    """

    _states: HiddenStates
    _skips_first: bool
    """Whether it has no entry for the first token, before which there is no state."""
    _true: int = 0
    """Leading tokens whose entries come from the model's own states."""
    _last: Any = None
    """The head's own state after the last token, shape (1, width); None if it is not known."""

    @property
    def _first_entry(self) -> int:
        """The first position that may have an entry where none has one before."""
        return self._states.first + self._skips_first

    def _passed(self, length: int) -> int:
        """The longest length, up to this one, that the model has passed and states are known of."""
        return min(length, self._true, self._states.end or self._true)

    def _without_states(self, start: int, most: int) -> int:
        """Number of tokens from start on, most at the most, to be left out for lack of a state.

        None behind other entries, as a head cannot leave out positions.
        """
        if self._has_entries_before(start) or self._true < start:
            return 0
        return min(max(self._first_entry - start, 0), most)

    def _known(self, start: int, count: int) -> int:
        """Number of tokens from start on to be run with the model's own states before them."""
        return self._states.known_before(start, count, otherwise=self._last is not None)

    def _own_state(self) -> Any:
        assert self._last is not None, "only a pass with logits leaves a state"
        return self._last

    def _has_entries_before(self, start: int) -> bool:
        raise NotImplementedError


class BlockLayers(Protocol):
    """Entries of positions, made from what a model left there, and passes over a block after them.

    All raise ModelError if the engine fails.
    """

    def inject(self, start: int, rows: Rows) -> None:
        """Make entries from states of the model at positions from start on, (positions, width)."""
        ...

    def remove(self, length: int) -> None: ...

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        """Rows of count tokens after the known ones, of which the first is at position start.

        Nothing of the pass is kept. known: the text's last token, and drafted ones after it.
        """
        ...

    def close(self) -> None:
        """Free the entries."""
        ...


def independent(rows: Logits) -> Block:
    """Rows that depend on the text before the block alone; shape (tokens, n_vocab).

    DFlash (arXiv 2602.06036).
    """
    return lambda drafted: rows[len(drafted)] if len(drafted) < len(rows) else None


def after_likeliest(rows: Logits) -> Block:
    """Rows each computed after the likeliest tokens of those before it; shape (tokens, n_vocab).

    DSpark. What is likely after another token they do not know, so that they end with it.
    """
    likeliest = rows.argmax(axis=1).tolist()

    def after(drafted: Sequence[int]) -> Logits | None:
        count = len(drafted)
        if count >= len(rows) or list(drafted) != likeliest[:count]:
            return None
        return rows[count]

    return after


def in_lattice(lattice: Rows, candidates: int, n_vocab: int, guessed: Sequence[int] = ()) -> Block:
    """Rows by scores of the candidates of a place after each candidate of the place before.

    DFlash2. lattice: row by place, of the ids of its candidates and, for each one of the place
    before, their scores; the first place has one token before it, whose scores come first. guessed:
    tokens of the first places.
    """

    def after(drafted: Sequence[int]) -> Logits | None:
        path = [*guessed, *drafted]
        if len(path) >= len(lattice):
            return None
        before = 0
        if path:
            found = np.flatnonzero(lattice[len(path) - 1, :candidates] == path[-1])
            if not len(found):
                return None
            before = int(found[0])
        place = lattice[len(path)]
        scores = place[candidates * (1 + before) :][:candidates]
        row = np.full(n_vocab, -np.inf, np.float32)
        row[place[:candidates].astype(np.int64)] = scores
        return row

    return after


class BlockHead(HeadContext):
    """Reads layers of its model at each position, and predicts a block of tokens after the last.

    The last token, and drafted ones that its model has not passed, go into the block before the
    masks; the others have entries made from what the model left. Positions of which nothing is
    known have none, nor has what is before them.
    """

    def __init__(
        self,
        layers: BlockLayers,
        states: HiddenStates,
        *,
        longest: int,
        n_vocab: int,
        n_ctx: int,
        n_chunk: int,
        kv_bytes_per_token: int,
        on_close: Callable[[], None],
    ) -> None:
        """Take over layers without entries. longest: tokens of a draft at most."""
        self._layers: BlockLayers | None = layers
        self._states = states
        self._n_vocab = n_vocab
        self.n_ctx = self.max_rollback = n_ctx
        self.n_chunk = self.max_logits = n_chunk
        self.kv_bytes_per_token = kv_bytes_per_token
        self._on_close = on_close
        self.longest = min(longest, n_chunk - 1)
        self.tokens = []
        self._injected = 0
        """Leading tokens that have their entries, or none for want of what the model left."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        assert 0 <= n_logits <= len(tokens) <= self.n_chunk
        if n_logits == 0:
            self._append(tokens)
            return np.empty((0, self._n_vocab), np.float32)
        start, first = len(self.tokens), len(tokens) - n_logits + 1
        try:
            rows = [self._row_after(tokens[:first])]
            rows += [self._row_after([token]) for token in tokens[first:]]
        except SpecchatError:
            self.truncate(start)
            raise
        return np.vstack(rows)

    def _row_after(self, tokens: Sequence[int]) -> Logits:
        """The row after these, by a pass of its own, as it sees its whole block."""
        self._append(tokens)
        row = self.draft(1)(())
        if row is None:
            raise ModelError("the head could not draft", "its model has to read the text first")
        return row.copy()

    def _append(self, tokens: Sequence[int]) -> None:
        start, injected = len(self.tokens), self._injected
        check_room(self, len(tokens))
        self.tokens.extend(tokens)
        try:
            self._inject()
        except SpecchatError:
            self._injected = injected
            self.truncate(start)
            raise

    def _inject(self) -> None:
        """Make entries from what the model left, as far as it goes; of all but the last token.

        Where it has left nothing, as while costs are measured, from zeros.
        """
        states, layers = self._states, self._opened()
        start, end = self._injected, len(self.tokens) - 1
        if states.end:
            end = min(end, states.end)
            if start < states.first and start < end:
                layers.remove(0)
                start = min(states.first, end)
        for at in range(start, end, self.n_chunk):
            until = min(at + self.n_chunk, end)
            zeros = np.zeros((until - at, states.width), np.float32)
            layers.inject(at, states.rows(at, until) if states.end else zeros)
        self._injected = max(start, end)
        states.release(self._injected)

    def draft(self, count: int) -> Block:
        known = self.tokens[self._injected :]
        assert known, "a block begins with the last token"
        count = min(count, self.longest + 1 - len(known))
        if count <= 0:
            return lambda _: None
        return self._opened().draft(self._injected, known, count)

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        del self.tokens[length:]
        self._injected = min(self._injected, length)
        self._opened().remove(self._injected)

    def _opened(self) -> BlockLayers:
        assert self._layers is not None, "the context is closed"
        return self._layers

    def close(self) -> None:
        if self._layers is None:
            return
        self._layers.close()
        self._layers = None
        self._on_close()
