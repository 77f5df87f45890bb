"""Catches up the context of a drafter whose vocabulary differs from the target's."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.drafters.cross_vocabulary.retokenizer import Retokenizer
from decoding.drafters.model.reader import full
from decoding.prefill import common_prefix, prefill, reuse


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
        """Start with a history that need not continue the previous one."""
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))

    def backlog(self, history: Sequence[int]) -> int:
        """Approximate number of tokens to read: target tokens, as nothing is tokenized here."""
        new = history[self._retokenizer.followed :]
        return max(len(new) - common_prefix(self._drafted, new), 1)

    def commit(self, history: Sequence[int]) -> None:
        """Do nothing: the next row catches up."""

    def rest(self) -> None:
        """Nothing to settle: the next row catches up."""

    def refusal(self, history: Sequence[int]) -> str:
        """Why it cannot draft: the text read so far fills the context; empty if it can."""
        del history  # it was not tokenized yet
        is_full = len(self._retokenizer.tokens) >= self._context.n_ctx
        return full(self._context) if is_full else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history; yields tokens held after each chunk."""
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
