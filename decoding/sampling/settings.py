"""Sampling settings and the opt-in lossy rules; read without loading numpy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from types import MappingProxyType

from backends.base import UsageError


@dataclass(frozen=True, slots=True)
class _Strengths:
    """Range and default of a rule's strength, and the strength at which it is exact."""

    low: float
    high: float
    default: float
    neutral: float | None


_STRENGTHS: Mapping[str, _Strengths] = MappingProxyType(
    {
        "typical": _Strengths(0.001, 1.0, 0.09, None),
        "ears": _Strengths(0.0, 1.0, 0.1, 0.0),
        "lenient": _Strengths(1.0, 100.0, 2.0, 1.0),
    }
)

LOSSY = "lossy: "
"""Prefix of the label beside a reply."""

OFF = "off"
"""Text for no rule."""

LOSSY_RULES = tuple(_STRENGTHS)
"""Names of all rules."""


@dataclass(frozen=True, slots=True)
class LossyRule:
    """A rule by name, with its strength; decoding.verification.target_pass defines both.

    Raises:
        UsageError: the name is unknown, or the strength is out of range.
    """

    name: str
    strength: float

    def __post_init__(self) -> None:
        allowed = _strengths(self.name)
        if not (isfinite(self.strength) and allowed.low <= self.strength <= allowed.high):
            raise UsageError(
                f"the strength {self.strength:g} of the lossy rule {self.name} is out of range",
                f"it is at least {allowed.low:g}, at most {allowed.high:g}",
                f"The default is {allowed.default:g}.",
            )

    def __str__(self) -> str:
        """The text that parse_lossy reads."""
        return f"{self.name}:{self.strength:g}"

    @property
    def words(self) -> str:
        """Label shown beside a reply."""
        return f"{LOSSY}{self.name} {self.strength:g}"

    @property
    def warning(self) -> str:
        """Warning to the user who enabled it."""
        return (
            f"answers may be lossy ({self.name} {self.strength:g}): drafted tokens are accepted "
            "more often than the model alone would generate them, so that its distribution changes"
        )

    @property
    def is_neutral(self) -> bool:
        """Whether it is exact at its strength."""
        return _strengths(self.name).neutral == self.strength


def parse_lossy(text: str) -> LossyRule | None:
    """Parse a text like "ears" or "ears:0.2"; None for "off".

    Raises:
        UsageError: the rule is unknown, or its strength is not a number in range.
    """
    name, _, strength = text.strip().lower().partition(":")
    if text.strip().lower() == OFF:
        return None
    default = _strengths(name).default
    if not strength:
        return LossyRule(name, default)
    try:
        number = float(strength)
    except ValueError as error:
        raise UsageError(
            f"the lossy rule {text} cannot be used",
            f"{strength} is not a number",
            f"Write for example {name}:{default:g}.",
        ) from error
    return LossyRule(name, number)


def _strengths(name: str) -> _Strengths:
    if name not in _STRENGTHS:
        raise UsageError(
            f"no lossy rule {name or 'without a name'}",
            f"there are {', '.join(LOSSY_RULES)} and {OFF}",
            "A strength may follow one, as in ears:0.2.",
        )
    return _STRENGTHS[name]


_MAX_SEED = 2**63 - 1
_MOST_BIAS = 100.0
_MOST_PENALTY = 2.0
_MOST_TOKENS = 1 << 31


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Settings that shape the next-token distribution. top_k 0 means all tokens.

    lossy: opt-in rule that accepts more of a draft but does not keep the distribution.
    presence_penalty, frequency_penalty: subtracted from the logit of each token that the reply has
    already, once and for each time, as OpenAI defines them; the prompt does not count.
    logit_bias: tokens and what is added to their logits; -100 bans a token.

    Raises:
        UsageError: a value is out of range.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int = 0
    lossy: LossyRule | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        # Dividing by less than a thousandth would overflow.
        if self.temperature != 0.0 and not 0.001 <= self.temperature <= 100.0:
            raise UsageError(
                f"--temperature cannot be {_typed(self.temperature)}",
                "it is 0, or at least 0.001 and at most 100",
            )
        self._check("top-k", self.top_k, 0, 1 << 31)
        self._check("top-p", self.top_p, 0.0, 1.0, above=True)
        self._check("min-p", self.min_p, 0.0, 1.0)
        self._check("repeat-penalty", self.repeat_penalty, 0.01, 100.0)
        self._check("seed", self.seed, 0, _MAX_SEED)
        self._check("presence-penalty", self.presence_penalty, -_MOST_PENALTY, _MOST_PENALTY)
        self._check("frequency-penalty", self.frequency_penalty, -_MOST_PENALTY, _MOST_PENALTY)
        for token, bias in self.logit_bias:
            self._check("logit-bias", bias, -_MOST_BIAS, _MOST_BIAS)
            self._check("logit-bias", token, 0, _MOST_TOKENS)

    @property
    def counts_reply(self) -> bool:
        """Whether the distribution depends on how often the reply has each token."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before they are truncated."""
        return self.repeat_penalty != 1.0 or self.counts_reply or bool(self.logit_bias)

    @property
    def elsewhere(self) -> "SamplingSettings":
        """The settings for another vocabulary, and texts of which the reply's part is unknown."""
        if not (self.counts_reply or self.logit_bias):
            return self
        return replace(self, presence_penalty=0.0, frequency_penalty=0.0, logit_bias=())

    def check_vocabulary(self, n_vocab: int) -> None:
        """Check that each token with a bias is one of the model's.

        Raises:
            UsageError: there is no such token.
        """
        for token, _ in self.logit_bias:
            if token >= n_vocab:
                raise UsageError(
                    f"the token {token:,} of logit_bias does not exist",
                    f"the model has {n_vocab:,} tokens",
                )

    @property
    def lossy_in_effect(self) -> LossyRule | None:
        """The lossy rule; None if it would not change the distribution.

        At temperature 0 every rule accepts the likeliest token alone.
        """
        if self.lossy is None or self.lossy.is_neutral or self.temperature == 0.0:
            return None
        return self.lossy

    @staticmethod
    def _check(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
        if not low <= value <= high or (above and value == low):
            bound = f"above {_typed(low)}" if above else f"at least {_typed(low)}"
            what = f"--{name} cannot be {_typed(value)}"
            raise UsageError(what, f"it is {bound}, at most {_typed(high)}")


def _typed(number: float) -> str:
    """A number as users write it: 1000, not 1000.0."""
    return f"{number:,}".removesuffix(".0")
