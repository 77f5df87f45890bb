"""How much of a text that is being typed has rested for a moment."""

from collections.abc import Sequence

from decoding.prefill import common_prefix

REST_SECONDS = 0.3
"""Time for which words stand before they are read. Typists at 60 words a minute press a key every
0.2 s and finish a word every second, so that every word is read before the next one is complete,
and one that is mistyped and mended at once is not. A guess; not measured."""


class RestedText:
    """Tokens of a growing prompt, and since when its beginning has been as it is.

    Each word rests for itself: a text never has to pause as a whole to be read.
    """

    def __init__(self) -> None:
        self.tokens: Sequence[int] = ()
        self._marks: list[tuple[float, int]] = []
        """Since when so many tokens stand; both grow."""

    def update(self, tokens: Sequence[int], since: float) -> None:
        """Replace the tokens; what is new in them stands since then."""
        kept = common_prefix(self.tokens, tokens)
        self._marks = [(at, min(length, kept)) for at, length in self._marks if at <= since]
        if len(tokens) > kept or not self._marks:
            self._marks.append((since, len(tokens)))
        self.tokens = tokens

    def length(self, now: float) -> int:
        """Number of tokens that have rested."""
        rested = [length for since, length in self._marks if since + REST_SECONDS <= now]
        return max(rested, default=0)

    def next_in(self, now: float) -> float | None:
        """Seconds until more tokens have rested; None if all have."""
        rested = self.length(now)
        waits = [since + REST_SECONDS - now for since, length in self._marks if length > rested]
        return min(waits, default=None)
