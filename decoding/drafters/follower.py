"""A drafter's context that holds the target's text in the drafter's own tokens."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.drafters.reader import full
from decoding.prefill import common_prefix, prefill, reuse
from decoding.retokenizer import Retokenizer


class Follower:
    """Keeps a context at the end of the target's text, and draws on from there.

    Only what changed is read anew: text is tokenized from the last mark on, and the context is
    rolled back to what its tokens share with those before.
    """

    def __init__(self, context: Context, retokenizer: Retokenizer) -> None:
        self._context = context
        self._retokenizer = retokenizer
        self._agreed = 0
        self._drafted: Sequence[int] = ()

    @property
    def tokens(self) -> Sequence[int]:
        """The text that was followed, in the drafter's tokens."""
        return self._retokenizer.tokens

    def begin(self, history: Sequence[int]) -> None:
        """A history that need not continue the one before."""
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))

    def backlog(self, history: Sequence[int]) -> int:
        """About how many tokens it would read to get to the end of history: none is made anew."""
        new = history[self._retokenizer.followed :]
        return max(len(new) - common_prefix(self._drafted, new), 1)

    @property
    def refusal(self) -> str:
        """That the text which was followed fills the context: text only grows within a reply."""
        is_full = len(self._retokenizer.tokens) >= self._context.n_ctx
        return full(self._context) if is_full else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Get to the end of history; yields tokens held after each chunk."""
        for held, _ in self._prefill(history):
            yield held

    def row(self, history: Sequence[int]) -> Logits | None:
        """Logits after history, shape (1, drafter's n_vocab); None where it does not fit."""
        found = None
        for _, rows in self._prefill(history):
            found = rows
        return found

    def draw(self, token: int) -> Logits | None:
        """The same after one more token of the drafter; None where the context is full."""
        if self._context.length >= self._context.n_ctx:
            return None
        return self._context.forward([token], 1)

    def drafted(self, tokens: Sequence[int]) -> None:
        """Which target tokens the context holds beyond what was followed."""
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
            yield held, rows
