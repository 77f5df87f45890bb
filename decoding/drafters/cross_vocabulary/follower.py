"""The target's text in the tokens and the context of a drafter of another vocabulary."""

from collections.abc import Iterator, Mapping, Sequence

from backends.base import Context, Logits
from decoding.drafters.base import full
from decoding.drafters.cross_vocabulary.vocabularies import Speller, TokenBytes
from decoding.prefill import common_prefix, prefill, reuse

_TAIL_BYTES = 96
"""Bytes of text after the last mark from which a new mark is sought. A guess; not measured."""

_STABLE_BYTES = 32
"""Bytes before the end whose tokens may still change as text is added. A guess; not measured."""

_TRIES = 4
"""Places that are tried for a mark. A guess; not measured."""

_LONG_TAIL = 8 * _TAIL_BYTES
"""Bytes after which a mark is set at any token of the target, if no better place is found."""

_WHITESPACE = b" \t\r\n"


class Retokenizer:
    """Follows a history of target tokens. Only the text after the last mark is tokenized anew.

    A mark is a place where both tokenizations have a boundary and the drafter's tokens before and
    after it do not depend on each other. control: what stands for a control token of the target,
    such as those of chat templates; each is a mark. opening: tokens that lead every text.
    """

    def __init__(
        self,
        pieces: TokenBytes,
        speller: Speller,
        control: Mapping[int, Sequence[int]],
        opening: Sequence[int] = (),
    ) -> None:
        self._pieces = pieces.by_token
        self._speller = speller
        self._control = control
        self.tokens: list[int] = list(opening)
        """The drafter's tokens of the history followed so far; read-only."""
        self._history: list[int] = []
        self._marks = [(0, len(self.tokens))]

    @property
    def followed(self) -> int:
        """Number of target tokens followed so far."""
        return len(self._history)

    def begin(self, history: Sequence[int]) -> int:
        common = common_prefix(self._history, history)
        if common < len(self._history):
            while self._marks[-1][0] > common:
                self._marks.pop()
            ours, theirs = self._marks[-1]
            del self._history[ours:]
            del self.tokens[theirs:]
        return len(self.tokens)

    def follow(self, history: Sequence[int]) -> int:
        """Take in what history has beyond what was followed; returns how many tokens stand."""
        position, standing = self._marks[-1]
        if len(history) == len(self._history):
            return len(self.tokens)
        self._history.extend(history[len(self._history) :])
        del self.tokens[standing:]
        run = bytearray()
        for token in self._history[position:]:
            position += 1
            piece = self._pieces[token]
            run += piece
            if not piece:
                self.tokens += self._speller.spell(bytes(run))
                self.tokens += self._control.get(token, ())
                self._marks.append((position, len(self.tokens)))
                run.clear()
        tail = self._speller.spell(bytes(run))
        if len(run) > _TAIL_BYTES:
            self._mark(bytes(run), tail)
        else:
            self.tokens += tail
        return standing

    def _mark(self, run: bytes, tail: list[int]) -> None:
        """Take in the text after the last mark, with a new mark in it if a good place is found."""
        fallback = None
        for size, position in self._places(run):
            before = self._speller.spell(run[:size])
            after = self._speller.spell(run[size:])
            if before + after == tail:
                break
            fallback = fallback or (position, before, after)
        else:
            if fallback is None or len(run) <= _LONG_TAIL:
                self.tokens += tail
                return
            position, before, after = fallback
        self.tokens += before
        self._marks.append((position, len(self.tokens)))
        self.tokens += after

    def _places(self, run: bytes) -> list[tuple[int, int]]:
        """(bytes before, target tokens before) of places for a mark, the best first.

        Tokenizers seldom join across the beginning of a word; the later, the less is left.
        """
        size, position = len(run), len(self._history)
        places: list[tuple[int, int]] = []
        words: list[tuple[int, int]] = []
        while size > 0 and len(words) < _TRIES:
            if 0 < size <= len(run) - _STABLE_BYTES:
                is_word = run[size] in _WHITESPACE and run[size - 1] not in _WHITESPACE
                (words if is_word else places).append((size, position))
            position -= 1
            size -= len(self._pieces[self._history[position]])
        return [*words, *places][:_TRIES]


class Follower:
    """Holds the target's text in the drafter's own tokens, and runs further ones after it.

    Only what changed is read again: text is tokenized from the last mark on, and the context is
    rolled back to the tokens that both have in common.
    """

    def __init__(self, context: Context, retokenizer: Retokenizer) -> None:
        self._context = context
        self._retokenizer = retokenizer
        self._agreed = 0
        self._drafted: Sequence[int] = ()

    @property
    def tokens(self) -> Sequence[int]:
        """The text read so far, in the drafter's tokens."""
        return self._retokenizer.tokens

    def begin(self, history: Sequence[int]) -> None:
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))

    def backlog(self, history: Sequence[int]) -> int:
        new = history[self._retokenizer.followed :]
        return max(len(new) - common_prefix(self._drafted, new), 1)

    def commit(self, history: Sequence[int]) -> None:
        """Do nothing: the next row catches up."""

    def rest(self) -> None:
        """Nothing to settle: the next row catches up."""

    def refusal(self, history: Sequence[int]) -> str:
        is_full = len(self._retokenizer.tokens) >= self._context.n_ctx
        return full(self._context) if is_full else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for held, _ in self._prefill(history):
            yield held

    def row(self, history: Sequence[int]) -> Logits | None:
        """Logits after history, shape (1, drafter's n_vocab); None if it does not fit."""
        row = None
        for _, rows in self._prefill(history):
            row = rows
        return row

    def draw(self, token: int) -> Logits | None:
        """Logits after one more token of the drafter; None if the context is full."""
        if self._context.length >= self._context.n_ctx:
            return None
        return self._context.forward([token], 1)

    def drafted(self, tokens: Sequence[int]) -> None:
        """Record which drafted target tokens the context holds after the text."""
        self._drafted = tokens

    def _prefill(self, history: Sequence[int]) -> Iterator[tuple[int, Logits]]:
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))  # guesses may be gone
        self._agreed = min(self._agreed, self._retokenizer.follow(history))
        tokens = self._retokenizer.tokens
        if not 0 < len(tokens) < self._context.n_ctx:
            return
        reuse(self._context, tokens, self._agreed)
        self._agreed = self._context.length
        for held, rows in prefill(self._context, tokens):
            self._agreed = held
            self._context.checkpoint(is_brief=held == len(tokens))
            yield held, rows
