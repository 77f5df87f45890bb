"""Settings that shape the next-token distribution; read without loading numpy."""

from dataclasses import dataclass

from backends.base import UsageError
from decoding.sampling.lossy_rule import LossyRule

_MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Settings that shape the next-token distribution. top_k 0 means all tokens.

    lossy: opt-in rule that accepts more of a draft but does not keep the distribution.

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

    def __post_init__(self) -> None:
        # Dividing by less than a thousandth would overflow.
        if self.temperature != 0.0 and not 0.001 <= self.temperature <= 100.0:
            raise UsageError(
                f"--temperature {self.temperature} is out of range",
                "it is 0, or at least 0.001 and at most 100",
            )
        self._check("top-k", self.top_k, 0, 1 << 31)
        self._check("top-p", self.top_p, 0.0, 1.0, above=True)
        self._check("min-p", self.min_p, 0.0, 1.0)
        self._check("repeat-penalty", self.repeat_penalty, 0.01, 100.0)
        self._check("seed", self.seed, 0, _MAX_SEED)

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
            bound = f"above {low:,}" if above else f"at least {low:,}"
            raise UsageError(
                f"--{name} {value} is out of range", f"it is {bound}, at most {high:,}"
            )
