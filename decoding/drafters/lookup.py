"""Prompt lookup (Saxena 2023): drafts what followed the longest matching suffix last time."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.sampling.sampler import Sampler

# Finds earlier occurrences of a growing text's suffix: an online suffix automaton.
#
# Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text". Appending is O(1)
# amortised and the longest earlier match is known after each append, without any search.

_ROOT = 0
_NONE = -1
_REFRESHED = 64
"""Suffixes, longest first, whose latest occurrence an append moves; deeper ones may lag in a text
that repeats one token for long, and then give an older occurrence."""


class SuffixIndex:
    """Longest suffix of the tokens so far that occurred before, and its latest occurrence."""

    def __init__(self) -> None:
        self._length = array("i", [0])
        self._link = array("i", [_NONE])
        self._latest = array("i", [0])
        # Most states go on with one token only; a table is kept where a second one came.
        self._only_token = array("i", [_NONE])
        self._only_target = array("i", [_NONE])
        self._branches: dict[int, dict[int, int]] = {}
        self._last = _ROOT
        self._size = 0
        self.match_length = 0
        """Tokens of the longest suffix that occurred before; 0 for none."""
        self.match_end = 0
        """Position of the token that followed its latest earlier occurrence."""

    def __len__(self) -> int:
        return self._size

    def append(self, token: int) -> None:
        """Take one more token and update the match."""
        current = self._new_state(self._length[self._last] + 1)
        state = self._last
        while state != _NONE and self._next(state, token) == _NONE:
            self._set_next(state, token, current)
            state = self._link[state]
        self._link[current] = _ROOT if state == _NONE else self._suffix_state(state, token)
        self._last = current
        self._size += 1
        match = self._link[current]
        self.match_length = self._length[match]
        self.match_end = self._latest[match]
        self._refresh(current)

    def match_after(self, tokens: Sequence[int]) -> tuple[int, int]:
        """match_length and match_end as they would be after tokens, which are not taken in.

        Only occurrences that end before these tokens count.
        """
        if not tokens:
            return self.match_length, self.match_end
        state, length = max(self._link[self._last], _ROOT), self.match_length
        for token in tokens:
            state, length = self.follow(state, length, token)
        return length, self._latest[state]

    def follow(self, state: int, length: int, token: int) -> tuple[int, int]:
        """State and length of the longest suffix of another text that occurs in this one.

        state, length: those before its next token; both are 0 at its start.
        """
        while state > _ROOT and self._next(state, token) == _NONE:
            state = self._link[state]
            length = self._length[state]
        following = self._next(state, token)
        return (_ROOT, 0) if following == _NONE else (following, length + 1)

    def latest(self, state: int) -> int:
        """Position after the latest occurrence of a state's suffix."""
        return self._latest[state]

    def _suffix_state(self, state: int, token: int) -> int:
        """The state of the longest suffix seen before, split off a longer one where needed."""
        target = self._next(state, token)
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        clone = self._new_state(length)
        self._link[clone] = self._link[target]
        self._latest[clone] = self._latest[target]
        self._only_token[clone] = self._only_token[target]
        self._only_target[clone] = self._only_target[target]
        if target in self._branches:
            self._branches[clone] = self._branches[target].copy()
        while state != _NONE and self._next(state, token) == target:
            self._set_next(state, token, clone)
            state = self._link[state]
        self._link[target] = clone
        return clone

    def _refresh(self, state: int) -> None:
        for _ in range(_REFRESHED):
            if state == _ROOT:
                return
            self._latest[state] = self._size
            state = self._link[state]

    def _new_state(self, length: int) -> int:
        self._length.append(length)
        self._link.append(_NONE)
        self._latest.append(0)
        self._only_token.append(_NONE)
        self._only_target.append(_NONE)
        return len(self._length) - 1

    def _next(self, state: int, token: int) -> int:
        if self._only_token[state] == token:
            return self._only_target[state]
        branches = self._branches.get(state)
        return _NONE if branches is None else branches.get(token, _NONE)

    def _set_next(self, state: int, token: int, target: int) -> None:
        if self._only_token[state] in (_NONE, token):
            self._only_token[state] = token
            self._only_target[state] = target
        else:
            self._branches.setdefault(state, {})[token] = target


# Prompt lookup: drafts what followed the latest occurrence of the longest matching suffix.
#
# Saxena 2023, prompt lookup decoding.

_CLASSES = (
    (1, 0.2), (2, 0.5), (3, 0.6), (4, 0.7), (5, 0.75), (6, 0.8), (8, 0.85), (11, 0.9), (15, 0.92),
    (20, 0.94), (30, 0.96), (50, 0.97),
)  # fmt: skip
"""Shortest match of each class, and its prior acceptance."""


class PromptLookup(Drafter):
    """Proposes the continuation of an earlier occurrence of the history's suffix."""

    is_free = True

    def __init__(self, *, min_match: int = 2, max_draft: int = MOST_DRAFTED) -> None:
        self.name = "lookup"
        self._min_match = min_match
        self._max_draft = max_draft
        self._restart()

    def _restart(self) -> None:
        self._index = SuffixIndex()
        self._indexed: list[int] = []
        self._committed = 0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        if list(history[: len(self._indexed)]) != self._indexed:
            self._restart()
        self.commit(history)
        self._catch_up(history)

    def commit(self, history: Sequence[int]) -> None:
        self._committed = len(history)

    def _catch_up(self, history: Sequence[int]) -> None:
        for token in history[len(self._indexed) : self._committed]:
            self._index.append(token)
            self._indexed.append(token)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._catch_up(history)
        length, end = self._index.match_after(history[len(self._indexed) :])
        count = min(limit, self._max_draft)
        if count <= 0 or length < self._min_match:
            return NO_DRAFT
        tokens = list(history[end : end + count])
        # Where the occurrence reaches the end of the text, the text repeats itself.
        while len(tokens) < count:
            tokens.append(tokens[len(tokens) - (len(history) - end)])
        # A token is judged only if those before it are accepted, which lengthen the match.
        evidence = tuple(_class(length + position) for position in range(count))
        confidence = tuple(_CLASSES[number][1] for number in evidence)
        return Draft(PointMassLine(tuple(tokens)), self.name, confidence, evidence)


def _class(length: int) -> int:
    """Evidence class of a match of at least 1 token."""
    return bisect_right(_CLASSES, length, key=lambda entry: entry[0]) - 1
