"""Keys under which acceptance is counted: temperature bucket and token class."""

from decoding.sampling.lossy_rule import LossyRule

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
    return _temperatures(temperature) + (f"{_LOSSY}{rule}" if rule else "")


def _temperatures(temperature: float) -> str:
    if temperature == 0.0:
        return GREEDY
    return "cool" if temperature <= 0.5 else "warm" if temperature <= 0.9 else "hot"


def is_lossless(key: str) -> bool:
    """Whether tokens of a key were judged by the exact rule."""
    return _LOSSY not in key
