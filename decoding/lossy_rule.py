"""Opt-in rules that keep more of a draft than the model's distribution allows."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from backends.base import UsageError


@dataclass(frozen=True, slots=True)
class _Strengths:
    """What the number of one rule may be, what it is unless given, and with which it is exact."""

    low: float
    high: float
    usual: float
    neutral: float | None


_STRENGTHS: Mapping[str, _Strengths] = MappingProxyType(
    {
        "typical": _Strengths(0.001, 1.0, 0.09, None),
        "ears": _Strengths(0.0, 1.0, 0.1, 0.0),
        "lenient": _Strengths(1.0, 100.0, 2.0, 1.0),
    }
)

LOSSY = "lossy: "
"""What begins the words for a rule beside a reply."""

OFF = "off"
"""What stands for no rule."""

LOSSY_RULES = tuple(_STRENGTHS)
"""The names of all rules."""


@dataclass(frozen=True, slots=True)
class LossyRule:
    """Which rule, and its one number: decoding.verification.lossy says what each does with it.

    Raises:
        UsageError: no rule has the name, or the number is out of its range.
    """

    name: str
    strength: float

    def __post_init__(self) -> None:
        allowed = _strengths(self.name)
        if not (isfinite(self.strength) and allowed.low <= self.strength <= allowed.high):
            raise UsageError(
                f"the strength {self.strength:g} of the lossy rule {self.name} is out of range",
                f"it is at least {allowed.low:g}, at most {allowed.high:g}",
                f"{allowed.usual:g} is the usual one.",
            )

    def __str__(self) -> str:
        """As parse_lossy reads it."""
        return f"{self.name}:{self.strength:g}"

    @property
    def words(self) -> str:
        """As it is shown beside a reply."""
        return f"{LOSSY}{self.name} {self.strength:g}"

    @property
    def warning(self) -> str:
        """What a user who asked for it should know."""
        return (
            f"answers may be lossy ({self.name} {self.strength:g}): drafted tokens are kept that "
            "the model alone would say less often, so what is said is not distributed as its own"
        )

    @property
    def is_neutral(self) -> bool:
        """Whether its strength leaves the exact rule as it is."""
        return _strengths(self.name).neutral == self.strength


def parse_lossy(text: str) -> LossyRule | None:
    """The rule that a text like "ears" or "ears:0.2" names; None for "off".

    Raises:
        UsageError: it names none, or its strength is not a number in range.
    """
    name, _, strength = text.strip().lower().partition(":")
    if text.strip().lower() == OFF:
        return None
    usual = _strengths(name).usual
    if not strength:
        return LossyRule(name, usual)
    try:
        number = float(strength)
    except ValueError as error:
        raise UsageError(
            f"the lossy rule {text} cannot be used",
            f"{strength} is not a number",
            f"Write for example {name}:{usual:g}.",
        ) from error
    return LossyRule(name, number)


def _strengths(name: str) -> _Strengths:
    if name not in _STRENGTHS:
        raise UsageError(
            f"there is no lossy rule {name or 'without a name'}",
            f"there are {', '.join(LOSSY_RULES)} and {OFF}",
            "A strength may follow one, as in ears:0.2.",
        )
    return _STRENGTHS[name]
