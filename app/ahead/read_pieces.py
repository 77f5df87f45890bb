"""The account of a message: what was read ahead for it, at which cost, and what became of it."""

from dataclasses import dataclass, replace

from app.ahead.waste import AheadTime


@dataclass(frozen=True, slots=True)
class _Piece:
    """Tokens from start to end of a context, and the processor seconds of reading them."""

    start: int
    end: int
    seconds: float
    is_drafters: bool

    def upto(self, length: int) -> "_Piece":
        """The part of it before a length."""
        if self.end <= length:
            return self
        end = max(self.start, min(self.end, length))
        share = (end - self.start) / (self.end - self.start)
        return replace(self, end=end, seconds=share * self.seconds)


class ReadPieces:
    """Pieces read for the next message, by their places in the context."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self.wasted = 0.0
        """Processor seconds spent on what was taken back since the last message."""
        self._again = 0.0
        """Processor seconds of what is the same, but was taken back to be read again."""

    def add(self, start: int, end: int, seconds: float, *, is_drafters: bool = False) -> None:
        """Note a piece that was read; is_drafters: by drafters, after the target."""
        self._pieces.append(_Piece(start, end, seconds, is_drafters))

    def lost(self, seconds: float) -> None:
        """Note time of a piece that was stopped or failed."""
        self.wasted += seconds

    def cut(self, length: int) -> None:
        """Note that no more than so many tokens are kept."""
        self.wasted += self._removed(length)

    def read_again(self, length: int) -> None:
        """Note that all beyond so many tokens is read again as it is: it was not in vain."""
        self._again += self._removed(length)

    def _removed(self, length: int) -> float:
        """Remove what was read beyond a length; returns its seconds."""
        before = sum(piece.seconds for piece in self._pieces)
        self._pieces = [piece.upto(length) for piece in self._pieces if piece.start < length]
        return before - sum(piece.seconds for piece in self._pieces)

    def take_wasted(self) -> AheadTime:
        """The time that was wasted, which is then no longer counted."""
        wasted, self.wasted = self.wasted, 0.0
        return AheadTime(0.0, wasted)

    def settle(self, length: int) -> tuple[int, AheadTime]:
        """Close the account of a message that begins with so many tokens of the context.

        Returns how many of them were read ahead, and the time that was used and wasted.
        """
        self.cut(length)
        tokens = sum(piece.end - piece.start for piece in self._pieces if not piece.is_drafters)
        time = AheadTime(sum(piece.seconds for piece in self._pieces) + self._again, self.wasted)
        self._pieces, self.wasted, self._again = [], 0.0, 0.0
        return tokens, time
