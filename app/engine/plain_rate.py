"""The speed of plain decoding during a reply, which may draft, and how sure it is."""

from dataclasses import dataclass

from decoding.estimation.cost import CostModel
from decoding.telemetry import Statistics

_ENOUGH_PLAIN_STEPS = 3
"""Plain steps of a reply whose mean is taken as the plain rate."""

_ENOUGH_STEPS = 12
"""Steps of any kind after which the corrected costs are taken as those of the present load."""

_COST_ERROR = 0.05
"""Relative standard error of the cost of a plain step that was measured at load and corrected."""


@dataclass(frozen=True, slots=True)
class PlainRate:
    """Tokens per second of plain decoding, where the figure comes from, and its standard error.

    error: relative to the rate; None where the reply itself is plain.
    """

    tokens_per_second: float
    source: str
    error: float | None = None


def plain_rate(costs: CostModel | None, statistics: Statistics) -> PlainRate | None:
    """The plain rate at the load during a reply; None until it can be told.

    costs: of the target's passes, None where nothing drafts.
    """
    if costs is None or statistics.drafted == 0:
        rate = statistics.decode_tokens_per_second
        return None if rate is None else PlainRate(rate, "this reply, which is plain")
    steps, error = statistics.plain_steps, statistics.plain_step_error
    if steps >= _ENOUGH_PLAIN_STEPS and error is not None:
        rate = steps / statistics.plain_step_seconds
        return PlainRate(rate, f"{steps} plain steps of this reply", error)
    if statistics.steps < _ENOUGH_STEPS:
        return None
    source = "measured when the model was loaded, corrected by the steps of this reply"
    return PlainRate(1.0 / costs.seconds(1), source, _COST_ERROR)
