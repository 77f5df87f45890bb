"""Drafts from a text that the reply is expected to repeat in large parts (Predicted Outputs)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.drafters.lookup import common_suffix
from decoding.sampling.sampler import Sampler

NAME = "prediction"

_CLASSES = (
    (0, 0.25), (1, 0.6), (2, 0.8), (3, 0.9), (4, 0.95), (6, 0.97), (8, 0.97), (12, 0.98),
    (20, 0.99), (40, 0.99),
)  # fmt: skip
"""Least number of matching tokens before a token, and its prior acceptance, corrected by counts.

In edited source files 0.26, 0.70, 0.84, 0.95, 0.97, 0.98, 0.98, 0.98, 0.99 and 0.995 are right; the
priors are lower, as predictions may be worse than these.
"""

_START, _START_PRIOR = len(_CLASSES), 0.5
"""Class of the first predicted token, and its prior acceptance: a guess, not measured."""

_TRUSTED = 4
"""Matching tokens in a row that settle where the reply is. A guess; not measured."""

_MOST_COMPARED = 64
"""Occurrences of a token, and tokens of each, that are compared to find the place again."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the reply is in the predicted text.

    next: index of the token expected next. matched: tokens before it that the reply repeated in a
    row. trusted: the place where that was certain last. since: tokens of the reply since then.
    """

    next: int = 0
    matched: int = 0
    trusted: int = 0
    since: int = 0


class PredictedText(Drafter):
    """Proposes how the predicted text goes on from where the reply is in it.

    Where the reply deviates, its place is found again by the longest suffix that occurs in the
    text, at its first occurrence after the last certain place. predicted: tokens of the text.
    begins_at: tokens of the prompt before the reply, whose beginning may be part of the prompt.
    """

    is_free = True

    def __init__(self, predicted: Sequence[int], begins_at: int) -> None:
        self.name = NAME
        self._predicted = list(predicted)
        self._ends: dict[int, list[int]] = {}
        """Places after each occurrence of a token, ascending."""
        for place, token in enumerate(self._predicted, start=1):
            self._ends.setdefault(token, []).append(place)
        self._begins_at = self._read = begins_at
        self._place = _Place()

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        if len(history) < self._read:  # another reply: this one only ever grows
            self._read, self._place = self._begins_at, _Place()
        self.commit(history)

    def commit(self, history: Sequence[int]) -> None:
        self._place = self._after(history)
        self._read = max(self._read, len(history))

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        place = self._after(history)
        tokens = self._predicted[place.next : place.next + max(min(limit, MOST_DRAFTED), 0)]
        if not tokens:
            return NO_DRAFT
        # A token is judged only if those before it are accepted, which lengthen the match.
        evidence = [_class(place.matched + position) for position in range(len(tokens))]
        confidence = [_CLASSES[number][1] for number in evidence]
        if place == _Place():
            evidence[0], confidence[0] = _START, _START_PRIOR
        return Draft(PointMassLine(tuple(tokens)), self.name, tuple(confidence), tuple(evidence))

    def _after(self, history: Sequence[int]) -> _Place:
        place = self._place
        for end in range(self._read, len(history)):
            first = max(self._begins_at, end + 1 - _MOST_COMPARED)
            place = self._moved(place, history[first : end + 1])
        return place

    def _moved(self, place: _Place, tail: Sequence[int]) -> _Place:
        """The place after one more token of the reply, the last of its tail."""
        since, at = place.since + 1, place.next
        is_expected = at < len(self._predicted) and self._predicted[at] == tail[-1]
        length = following = 0
        if not is_expected or place.matched + 1 < _TRUSTED:
            length, following = self._nearest(tail, place.trusted)
        if is_expected and place.matched + 1 >= min(length, _TRUSTED):
            matched, following = place.matched + 1, at + 1
        elif length:
            matched = length
        else:  # as if as many tokens were replaced
            return _Place(place.trusted + since, 0, place.trusted, since)
        if matched >= _TRUSTED:
            return _Place(following, matched, following)
        return _Place(following, matched, place.trusted, since)

    def _nearest(self, tail: Sequence[int], trusted: int) -> tuple[int, int]:
        """Length of the longest suffix that occurs, and the first place after trusted behind it.

        If there is none, its last place.
        """
        ends = self._ends.get(tail[-1], [])
        first = bisect_right(ends, trusted)
        places = ends[first : first + _MOST_COMPARED]
        places += reversed(ends[max(first - _MOST_COMPARED, 0) : first])
        lengths = [common_suffix(tail, self._predicted, place) for place in places]
        longest = max(lengths, default=0)
        return longest, places[lengths.index(longest)] if places else 0


def _class(matched: int) -> int:
    """Evidence class of a token after so many matching ones."""
    return bisect_right(_CLASSES, matched, key=lambda entry: entry[0]) - 1
