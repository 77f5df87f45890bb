"""Acceptance of a drafter's tokens by key: decayed counts, learned from every verification."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from decoding.draft import Draft
from decoding.sampling.settings import LossyRule, SamplingSettings

ANY_POSITION = "drawn"
"""Class of every token of a drafter model, at any position."""

EMPTY_DRAFT = "nothing"
"""Class of a requested draft without a token."""

_LOSSY = " lossy "
"""Separator of temperature and rule in the keys of tokens that a lossy rule judged."""

GREEDY = "greedy"
"""The bucket of temperature 0."""


def temperature_bucket(temperature: float, rule: LossyRule | None = None) -> str:
    """Bucket of temperatures at which acceptance is similar; each lossy rule has its own."""
    above = "cool" if temperature <= 0.5 else "warm" if temperature <= 0.9 else "hot"
    bucket = above if temperature else GREEDY
    return f"{bucket}{_LOSSY}{rule}" if rule else bucket


def is_lossless(key: str) -> bool:
    """Whether tokens of a key were judged by the exact rule."""
    return _LOSSY not in key


_MEMORY = 0.985
"""Share of a count that each new observation keeps: about the last 60 matter. A guess; not
measured."""

_UNREACHED = 0.9
"""Share that a position's counts keep when a draft that ends before it is accepted whole, where a
width of passes is kept: what was seen there is of earlier text. On an H200 drafts stayed 3 tokens
long through replies in which all were accepted, as some of 7 had failed in the reply before. With
0.9 the simulated 32B decodes 8 % faster (six replies of unlike texts)."""

_PRIOR_WEIGHT = 10.0
"""Observations that a prior counts for, before it fades. A guess; not measured."""

_BIAS_RATE = 0.12
"""Change of a reply's bias, in log odds, by a token that was fully unexpected, so that a text that
suits a drafter shows within a few tokens. A guess; not measured."""

_BIAS_MEMORY = 0.98
"""Share of the bias kept per judged token or step: about the last 50 matter. A guess; not
measured."""

_OF_ALL = 15.0
"""Observations of one reply of several that what all of them showed counts for."""

_TRIED = 12.0
"""Judged tokens of one reply of several until which it is hoped to suit a drafter. Four replies of
200 tokens in texts right at 0.3 (8B on a simulated H100) keep 0.985 of plain decoding, 0.978 with
15; of 400 tokens right at 0.9 and 0.3 on the 32B make 0.95 of the best fixed length of each kind,
0.89 without hope, 0.79 with one bias a reply in place of counts of its own."""

_UNJUDGED = 0.995
"""Share that counts of one reply keep at a step that judged nothing, so that it is tried again.
Four replies of 1,500 tokens of the simulated 32B, two right at 0.8 and two at 0.5, make 0.97 of the
best fixed length, 0.91 without. With 0.99 one of 42 runs fell to 0.97 of plain."""

_MOST_HOPED = 0.99
"""Acceptance hoped for at most, as hope of certainty drafts without end. A guess."""

_CARRIED = 40.0
"""Most observations that counts of earlier sessions or of a trial count for, two thirds of a full
count, as the next text may differ. Where four tokens cost 2.0 plain steps, drafters right at 0.9
make the first six replies 1.17 times as fast, with 20 1.15; trials that promised too much cost the
same with both (simulated)."""

LEAST = 0.005
"""Distance that estimates keep from 0 and 1, so that log odds are finite: a token in 200."""


@dataclass(slots=True)
class Count:
    """Decayed counts of tokens of one key."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: bool) -> None:
        """Count one judged token."""
        self.accepted = self.accepted * _MEMORY + accepted
        self.judged = self.judged * _MEMORY + 1.0

    def fade(self, kept: float) -> None:
        """Let it say less."""
        self.accepted *= kept
        self.judged *= kept

    def mean(self, prior: float) -> float:
        """The posterior mean under a prior that fades as observations come in."""
        weight = _PRIOR_WEIGHT * max(0.0, 1.0 - self.judged * (1.0 - _MEMORY))
        return (self.accepted + weight * prior) / (self.judged + weight)


class Acceptance:
    """Acceptance estimates by key, shifted by the bias of the present reply.

    A key is any string; its count is a Beta posterior with decay. The bias, in log odds, is shared
    by all keys, so that a text that suits the drafter shows within a few tokens. is_trial: whether
    counts are the expectation of a trial, as no token was judged yet. is_shared: whether replies
    are written side by side: then, in place of the bias, each has counts of its own, to which those
    of all are a prior, as most tokens that these count are of other texts.
    """

    def __init__(
        self, counts: Mapping[str, tuple[float, float]] | None = None, *, is_trial: bool = False
    ) -> None:
        self.is_trial = is_trial
        self.is_shared = False
        self.version = 0
        """Number of changes so far."""
        self._counts: dict[str, Count] = {}
        self._of_reply: dict[str, Count] = {}
        self._bias = 0.0
        for key, (accepted, judged) in (counts or {}).items():
            share = min(1.0, _CARRIED / judged) if judged > 0 else 0.0
            self._counts[key] = Count(accepted * share, judged * share)

    def counts(self) -> dict[str, tuple[float, float]]:
        """Accepted and judged tokens by key, to be stored."""
        return {key: (count.accepted, count.judged) for key, count in self._counts.items()}

    def beside(self) -> "Acceptance":
        """For another reply at the same time: what one learns both know."""
        other = Acceptance(is_trial=self.is_trial)
        other._counts = self._counts
        return other

    def begin(self) -> None:
        self.version += 1
        self._bias = 0.0
        self._of_reply.clear()

    def mean(self, key: str, prior: float) -> float:
        """Acceptance of a key, given that the tokens before are accepted.

        Over all replies, or of this one where it is one of several.
        """
        count = self._counts.get(key)
        mean = prior if count is None else count.mean(prior)
        if self.is_shared and (own := self._of_reply.get(key)):
            return (own.accepted + _OF_ALL * mean) / (own.judged + _OF_ALL)
        return mean

    def share(self, key: str) -> float | None:
        """Observed share of accepted tokens of a key; None without observations."""
        count = self._counts.get(key)
        return count.accepted / count.judged if count and count.judged else None

    def judged(self, key: str) -> float:
        """Decayed number of observations of a key."""
        count = self._counts.get(key)
        return count.judged if count else 0.0

    def judged_here(self, key: str) -> float:
        """As judged, in this reply."""
        count = self._of_reply.get(key)
        return count.judged if count else 0.0

    def in_this_reply(self, mean: float, better: float = 0.0) -> float:
        """A mean, shifted by this reply's bias, if it is alone, and by better, in log odds."""
        mean = min(max(mean, LEAST), 1.0 - LEAST)
        shift = better if self.is_shared else self._bias + better
        if shift == 0.0:
            return mean
        return 1.0 / (1.0 + (1.0 / mean - 1.0) * math.exp(-shift))

    def update_bias(self, estimate: float, accepted: bool) -> None:
        """Update this reply's bias by a judged token and its estimate."""
        self.version += 1
        self._bias = _BIAS_MEMORY * self._bias + _BIAS_RATE * (accepted - estimate)

    def add(self, key: str, accepted: bool) -> None:
        """Count one judged token of a key."""
        self.version += 1
        self.is_trial = False
        for counts in (self._counts, self._of_reply):
            counts.setdefault(key, Count()).add(accepted)

    def fade(self, key: str) -> bool:
        """Let counts of a key say less; whether there are any."""
        self.version += 1
        count = self._counts.get(key)
        if count is None:
            return False
        count.fade(_UNREACHED)
        return True

    def decay_bias(self, steps: int = 1) -> None:
        """Fade the bias, and what this reply showed, at steps that judged nothing."""
        self.version += 1
        self._bias *= _BIAS_MEMORY**steps
        for count in self._of_reply.values():
            count.fade(_UNJUDGED**steps)


POSITION_PRIOR = 0.65
"""Acceptance assumed of a drafter model without a trial or counts. A guess: below the 0.71 to 0.74
measured for a copy of the model itself (docs/reference/measurements.md)."""


TRAINED_PRIOR = 0.8
"""Acceptance assumed of layers that were trained to predict their target's next tokens. Published
for Qwen3.8-27B's own on code and prose together: 0.88 of first tokens, 0.80 of two
(github.com/sudoingX/qwen38-mtp, sweeps/rtx-5090.md); not measured here."""


class AcceptanceEstimates:
    """Estimates acceptance by evidence and by position, under the sampling settings of a reply.

    prior: acceptance expected until it is known. bucket: temperature bucket, with the lossy rule if
    there is one. text_kind: of the next token, "" if unknown. judged: tokens judged by the exact
    rule, sent or not.
    """

    def __init__(self, acceptance: Acceptance | None = None, prior: float = POSITION_PRIOR) -> None:
        self.acceptance = acceptance or Acceptance()
        self.prior = prior
        self.bucket = temperature_bucket(SamplingSettings().temperature)
        self.is_lossless = True
        self.text_kind = ""
        self.judged = Count()
        self._known: tuple[object, list[float]] = (None, [])

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        self.bucket = temperature_bucket(temperature, rule)
        self.is_lossless = rule is None
        self.text_kind = ""
        self.acceptance.begin()

    def of_token(self, confidence: float, evidence: int) -> float:
        """Probability that a token is accepted, given that all before it are."""
        return self.acceptance.in_this_reply(self._mean(f"{self.bucket}:{evidence}", confidence))

    def of_draft(self, draft: Draft) -> list[float]:
        """Probability that each token of a draft is accepted, given that all before it are."""
        pairs = zip(draft.confidence, draft.evidence, strict=True)
        return [self.of_token(confidence, evidence) for confidence, evidence in pairs]

    def by_position(self, first: int, count: int) -> list[float]:
        """Estimated acceptance of tokens that are not drafted yet, by position in the draft.

        A position that was rarely reached is assumed to be like the one before it.
        """
        acceptance, count = self.acceptance, first + count
        state = None if acceptance.is_shared else (acceptance, acceptance.version, self.text_kind)
        known, estimates = self._known
        if state is None or state != known or len(estimates) < count:  # others change shared counts
            estimates = self._estimates(count)
            self._known = state, estimates
        return estimates[first:count]

    def _estimates(self, count: int) -> list[float]:
        acceptance, estimates = self.acceptance, list[float]()
        mean, estimate = acceptance.mean(self._any_position, self.prior), 0.0
        kind_shift = _log_odds(self.mean_at_any_position) - _log_odds(mean)
        for key in _position_keys(self.bucket, count):
            before, mean = mean, acceptance.mean(key, mean)
            if mean != before or not estimates:
                estimate = acceptance.in_this_reply(mean, kind_shift)
            estimates.append(estimate)
        return estimates

    def at_position(self, position: int) -> float:
        return self.by_position(position, 1)[0]

    def hoped(self, count: int) -> list[float]:
        """By position, of one reply of several.

        At one standard error more until it has shown what it is like: it may suit the drafter
        though others do not, and then what that shows is worth more than it costs.
        """
        estimates = self.by_position(0, count)
        judged = self.acceptance.judged_here(self._any_position)
        if judged >= _TRIED:
            return estimates
        return [min(one, _MOST_HOPED) for one in _shifted(estimates, 1.0, _OF_ALL + judged)]

    def shifted(self, estimates: Sequence[float], errors: float) -> list[float]:
        return _shifted(estimates, errors, self.acceptance.judged(self._any_position))

    @property
    def mean_at_any_position(self) -> float:
        """Acceptance over all replies and positions, for this kind of text."""
        return self._mean(self._any_position, self.prior)

    @property
    def recalled(self) -> float | None:
        """Observed share of accepted tokens at any position; None if no token was judged."""
        is_known = self.acceptance.judged(self._any_position) > self._silent
        return self.acceptance.share(self._any_position) if is_known else None

    @property
    def was_silent(self) -> bool:
        """Whether the drafter ever proposed nothing when asked."""
        return self._silent > 0.0

    @property
    def is_untried(self) -> bool:
        """Whether nothing is known, from this session or an earlier one."""
        return not self.acceptance.counts()

    def add_token(self, evidence: int, confidence: float, *, accepted: bool) -> None:
        self.acceptance.update_bias(self.of_token(confidence, evidence), accepted)
        self._add(f"{self.bucket}:{evidence}", accepted)

    def add_position(self, position: int, *, accepted: bool) -> None:
        """Count a token of a drafter model by its position."""
        self._add(self._any_position, accepted)
        self.acceptance.add(f"{self.bucket}:at{position}", accepted)

    def fade_from(self, position: int) -> None:
        """Note that a draft of so many tokens was accepted whole: more may be, too."""
        while self.acceptance.fade(f"{self.bucket}:at{position}"):
            position += 1

    def add_judged(self, *, accepted: bool) -> None:
        """Count a token for the acceptance shown to the user, which is the exact rule's."""
        if self.is_lossless:
            self.judged.add(accepted)

    def add_silence(self) -> None:
        """Count an empty draft as a rejected token, though no token was judged."""
        self.add_position(0, accepted=False)
        self.acceptance.add(f"{self.bucket}:{EMPTY_DRAFT}", False)

    @property
    def _any_position(self) -> str:
        return f"{self.bucket}:{ANY_POSITION}"

    @property
    def _silent(self) -> float:
        return self.acceptance.judged(f"{self.bucket}:{EMPTY_DRAFT}")

    def _mean(self, key: str, prior: float) -> float:
        """Mean over all replies, narrowed down to this kind of text."""
        mean = self.acceptance.mean(key, prior)
        return self.acceptance.mean(f"{key}:{self.text_kind}", mean) if self.text_kind else mean

    def _add(self, key: str, accepted: bool) -> None:
        """Count a token under its key, and under the key of this kind of text."""
        self.acceptance.add(key, accepted)
        if self.text_kind:
            self.acceptance.add(f"{key}:{self.text_kind}", accepted)


def _shifted(estimates: Sequence[float], errors: float, judged: float) -> list[float]:
    """Estimates by so many tokens, shifted by standard errors."""
    return [
        min(max(mean + errors * math.sqrt(mean * (1.0 - mean) / (judged + 1.0)), 0.0), 1.0)
        for mean in estimates
    ]


@lru_cache(maxsize=64)
def _position_keys(bucket: str, count: int) -> list[str]:
    return [f"{bucket}:at{position}" for position in range(count)]


def _log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1.0 - LEAST)
    return math.log(share / (1.0 - share))


_FENCE = re.compile(rb"\s{0,3}(```|~~~)")
_ITEM = re.compile(rb"\s*([-*+]|\d{1,3}[.)]|\xe2\x80\xa2)\s")
_BLOCK_QUOTE = re.compile(rb"\s{0,3}>")
_OPENING, _CLOSING = "“".encode(), "”".encode()


class TextKind(StrEnum):
    PROSE = "prose"
    LIST = "list"
    CODE = "code"
    QUOTE = "quote"


class TextKindReader:
    """Classifies the end of a reply as it grows.

    piece: the bytes that a token adds to the text.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self.begin()

    def another(self) -> "TextKindReader":
        """One for another text."""
        return TextKindReader(self._piece)

    def begin(self) -> None:
        self._line = b""
        self._in_fence = False
        self._in_list = False

    def feed(self, tokens: Sequence[int]) -> None:
        """Add the tokens of a step."""
        *ended, rest = b"".join(map(self._piece, tokens)).split(b"\n")
        for text in ended:
            self._line += text
            self._end_line()
        self._line += rest

    def _end_line(self) -> None:
        self._in_list = self.current is TextKind.LIST and bool(self._line.strip())
        self._in_fence ^= _FENCE.match(self._line) is not None
        self._line = b""

    @property
    def current(self) -> TextKind:
        line = self._line
        if self._in_fence or _FENCE.match(line):
            return TextKind.CODE
        if _BLOCK_QUOTE.match(line) or _is_in_quotation(line):
            return TextKind.QUOTE
        # At the start of a line it is open whether a list goes on; most do.
        goes_on = self._in_list and not line.strip()
        return TextKind.LIST if goes_on or _ITEM.match(line) else TextKind.PROSE


def _is_in_quotation(line: bytes) -> bool:
    """Whether a quotation that began on the line is still open."""
    return line.count(b'"') % 2 == 1 or line.rfind(_OPENING) > line.rfind(_CLOSING)
