"""Speeds to expect of models that have not run here, from the speed of one that has."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.loading.model_list import Offered
from models import catalogue
from models.metadata.memory_bill import Fit

SUGGESTED_RATES = (8.0, 12.0, 20.0)
"""Tokens a second that suggested models should reach: from readable to quick."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Memory bandwidth of a device, and the fraction of it that plain decoding reaches.

    bandwidth: bytes per second.
    """

    bandwidth: float
    fraction: float

    @classmethod
    def measured(
        cls, bandwidth: float | None, rate: float | None, bytes_per_token: int
    ) -> "Reach | None":
        """From a model's plain rate; None if bandwidth or rate are unknown.

        The fraction is at most 1: a small model may be read from the processor's cache.
        """
        if not bandwidth or not rate:
            return None
        return cls(bandwidth, min(rate * bytes_per_token / bandwidth, 1.0))

    def rate(self, bytes_per_token: int | None) -> float | None:
        """Tokens a second to expect of a model that reads so many bytes; None if unknown."""
        return self.bandwidth * self.fraction / bytes_per_token if bytes_per_token else None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model to download, and the tokens a second to expect of it."""

    model: Offered
    rate: float


def suggested(offered: Sequence[Offered], reach: Reach | None) -> list[Suggestion]:
    """Up to three models to download, largest first: those that should reach 8, 12 and 20 tok/s.

    Each is the largest one that fits this machine and needs no login; none where no speed is known.
    """
    rated = [
        Suggestion(model, rate)
        for model in offered
        if _can_be_suggested(model) and reach and (rate := reach.rate(model.read_bytes))
    ]
    rated.sort(key=lambda suggestion: suggestion.model.size_bytes or 0, reverse=True)
    chosen: list[Suggestion] = []
    for least in SUGGESTED_RATES:
        quick = (one for one in rated if one.rate >= least and one not in chosen)
        chosen += [one for one in [next(quick, None)] if one is not None]
    return chosen


def _can_be_suggested(model: Offered) -> bool:
    entry = catalogue.find(model.name)
    is_open = entry is not None and not entry.is_gated
    return is_open and not model.is_installed and model.fit is Fit.FITS


def about(rate: float | None, *, is_narrow: bool = False) -> str:
    """An expected rate in words, such as "about 10 tok/s", or "~10 tok/s"; empty if unknown."""
    if rate is None:
        return ""
    if rate < 1.0:
        return "<1 tok/s" if is_narrow else "under 1 tok/s"
    return f"{'~' if is_narrow else 'about '}{_two_digits(rate):,} tok/s"


def _two_digits(rate: float) -> int:
    """A rate to two significant digits: it is an estimate."""
    return round(float(f"{rate:.2g}"))
