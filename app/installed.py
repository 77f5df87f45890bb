"""The models at hand, and whether this machine has the memory for them."""

from dataclasses import dataclass
from enum import StrEnum

from app.paths import Paths
from backends.device import available_memory
from models.reference import known_names

_BESIDE_WEIGHTS = 1.15
"""Weights, and what a context and the engine's own buffers usually take beside them."""

_TIGHT_SHARE = 0.8
"""Of free memory: above it other programs begin to suffer."""


class Fit(StrEnum):
    """How a model goes with the memory that is free."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_BIG = "too big"


@dataclass(frozen=True, slots=True)
class Installed:
    """A model on this machine; size in bytes of its file."""

    name: str
    size: int
    fit: Fit


def installed(paths: Paths) -> list[Installed]:
    """Every model that can be called by name, those that fit best first."""
    free = available_memory()
    found: list[Installed] = []
    for name, path in known_names(paths.models).items():
        try:
            size = path.stat().st_size
        except OSError:
            continue
        found.append(Installed(name, size, fit(size, free)))
    order = list(Fit)
    return sorted(found, key=lambda one: (order.index(one.fit), -one.size))


def fit(size: int, free: int) -> Fit:
    """Whether a file of size bytes can be run in free bytes."""
    needed = _BESIDE_WEIGHTS * size
    if needed > free:
        return Fit.TOO_BIG
    return Fit.TIGHT if needed > _TIGHT_SHARE * free else Fit.FITS
