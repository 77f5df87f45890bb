"""Incremental detokenization of a reply."""

import codecs
from collections.abc import Callable, Sequence
from math import inf

from backends.base import Tokenizer


class TextStream:
    """Text of a growing reply: whole characters only, up to the first stop text.

    begun: tokens of the beginning that the reply continues; their text is not told again.
    spell: what a token adds, None if its piece; it is called with each in order.
    shows_control: whether the texts of control tokens are part of it, except of those that end it.
    calls: texts that open what no stop text ends, as it would be useless if it were cut.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: tuple[str, ...] = (),
        *,
        begun: Sequence[int] = (),
        spell: Callable[[int], bytes | None] | None = None,
        shows_control: bool = False,
        calls: tuple[str, ...] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._spell = spell
        controls = tokenizer.special_texts if shows_control else ()
        self._control = frozenset(text.encode() for text in controls)
        self._piece = self._spelt if spell or controls else tokenizer.piece
        self._stops = stops
        self._calls = calls
        self.begun = begun
        self._cut = b""
        """Bytes of a character whose rest is yet to come."""
        for token in begun:
            self._decoded(token)
        self._held: str = ""
        self.text = ""
        """What was released so far."""
        self.ends: list[int] = []
        """Characters of the tokens up to the end of each, also of those held back."""
        self.stopped = False
        """Whether a stop text was reached; no text follows it."""
        self.stop_text = ""
        """The stop text that was reached first; of several at one place the first given."""

    def feed(self, token: int) -> str:
        """The text that a token adds; a possible beginning of a stop text is held back."""
        text = self._decoded(token)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(text))
        released = self._before_stop(text) if self._stops else text
        self.text += released
        return released

    def finish(self) -> str:
        """The text still held back, without a character that is incomplete."""
        rest, self._held = "" if self.stopped else self._held, ""
        self.text += rest
        return rest

    def _decoded(self, token: int) -> str:
        data = self._cut + self._piece(token)
        text, used = codecs.utf_8_decode(data, "replace")
        self._cut = data[used:]
        return text

    def _spelt(self, token: int) -> bytes:
        spelt = self._spell(token) if self._spell else None
        if spelt is not None:
            return spelt
        piece = self._tokenizer.piece(token)
        if piece or not self._control or token in self._tokenizer.end_tokens:
            return piece
        entry = self._tokenizer.entry(token)
        return entry if entry in self._control else b""

    def _before_stop(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        call = min(
            (text.find(mark) + len(mark) for mark in self._calls if mark in text), default=inf
        )
        starts = {
            stop: start
            for stop in self._stops
            if (start := text.find(stop)) >= 0 and start + len(stop) < call
        }
        if starts:
            self.stopped = True
            self.stop_text = min(starts, key=starts.__getitem__)
            return text[: starts[self.stop_text]]
        if call < inf:
            self._stops, self._held = (), ""
            return text
        safe = len(text) - self._possible_start(text)
        self._held = text[safe:]
        return text[:safe]

    def _possible_start(self, text: str) -> int:
        """Number of characters at the end that could begin a stop text, or a call."""
        awaited = (*self._stops, *self._calls)
        longest = max(map(len, awaited)) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(other.startswith(text[-size:]) for other in awaited):
                return size
        return 0


def spelling(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    text: str,
    spell: Callable[[int], bytes | None] | None = None,
) -> Sequence[int]:
    """The first of a reply's tokens, which spell a text and perhaps part of a character after it.

    None of them if they spell another text, as those of another vocabulary do.
    """
    stream = TextStream(tokenizer, spell=spell)
    spelt = [""]
    length = found = 0
    for place, token in enumerate(tokens):
        if length > len(text) or token >= tokenizer.n_vocab or token in tokenizer.end_tokens:
            break
        spelt.append(stream.feed(token))
        length += len(spelt[-1])
        found = place + 1 if length == len(text) else found
    return tokens[:found] if "".join(spelt[: found + 1]) == text else ()
