"""The kinds that tokens are counted by: ranges of temperature, and what is of any place in them."""

from decoding.sampling.lossy_rule import LossyRule

DRAWN = "drawn"
"""The kind of every token of a drafter model, whatever its place."""

NOTHING = "nothing"
"""The kind of a draft that was asked for and had no token."""

_LOSSY = " lossy "
"""What parts temperature and rule in the kinds of tokens that a lossy rule judged."""

GREEDY = "greedy"
"""The band of temperature 0."""


def temperature_bucket(temperature: float, rule: LossyRule | None = None) -> str:
    """Temperatures at which tokens are accepted about equally often; a lossy rule has its own."""
    return _temperatures(temperature) + (f"{_LOSSY}{rule}" if rule else "")


def _temperatures(temperature: float) -> str:
    if temperature == 0.0:
        return GREEDY
    return "cool" if temperature <= 0.5 else "warm" if temperature <= 0.9 else "hot"


def is_lossless(kind: str) -> bool:
    """Whether tokens of a kind were judged by the exact rule."""
    return _LOSSY not in kind
