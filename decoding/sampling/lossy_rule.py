"""Names and strengths of the opt-in lossy rules, and their text form."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    """A rule by name, with its strength; decoding.verification.lossy defines both.

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
            f"there is no lossy rule {name or 'without a name'}",
            f"there are {', '.join(LOSSY_RULES)} and {OFF}",
            "A strength may follow one, as in ears:0.2.",
        )
    return _STRENGTHS[name]
