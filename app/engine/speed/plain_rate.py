"""The speed of plain decoding during a reply, which may draft, and how sure it is."""

import math
from dataclasses import dataclass

from decoding.estimation.cost import CostModel
from decoding.telemetry import Statistics

_ENOUGH_PLAIN_STEPS = 3
"""Plain steps of a reply whose mean is taken as the plain rate."""

_ENOUGH_STEPS = 12
"""Steps of any kind after which the corrected costs are taken as those of the present load."""

_COST_ERROR = 0.12
"""Relative standard error of the corrected cost of a plain step.

Robust standard deviation of its ratio to the mean of a reply's own plain steps, in 102 replies of
the bundled model on two processors that other programs used too.
"""


@dataclass(frozen=True, slots=True)
class PlainRate:
    """Plain decoding during a reply: tokens per second, and where the figure comes from.

    error: relative standard error of the reply's rate over this one; None if nothing was drafted.
    """

    tokens_per_second: float
    source: str
    error: float | None = None


def plain_rate(costs: CostModel | None, statistics: Statistics, noise: float) -> PlainRate | None:
    """The plain rate at the load during a reply; None until it can be told.

    costs: of the target's passes, None where nothing drafts. noise: relative standard error of the
    speed over one second of plain decoding here.
    """
    seconds = statistics.decode_seconds
    if not seconds:
        return None
    if costs is None or statistics.drafted == 0:
        return PlainRate((statistics.completion_tokens - 1) / seconds, "this reply, which is plain")
    plain = statistics.plain_steps
    noise = max(noise, plain.noise or 0.0)
    # Where changes of width cost time, the plain steps between others are not those of plain
    # decoding.
    if not costs.changes and plain.count >= _ENOUGH_PLAIN_STEPS and plain.total > 0.0:
        source = f"{plain.count} plain steps of this reply"
        return PlainRate(plain.count / plain.total, source, _error(plain.total, seconds, noise))
    if statistics.steps < _ENOUGH_STEPS:
        return None
    source = "measured when the model was loaded, corrected by the steps of this reply"
    error = math.hypot(_COST_ERROR, noise / math.sqrt(seconds))
    return PlainRate(1.0 / costs.seconds(1), source, error)


def _error(plain: float, seconds: float, noise: float) -> float:
    """Relative standard error of a speedup over the plain steps of the same reply.

    plain: seconds in plain steps, which are part of all seconds and so contribute nothing. The
    others and the plain ones vary independently, each with the root of its time.
    """
    drafted = max(seconds - plain, 0.0)
    return noise * math.sqrt(drafted**2 / plain + drafted) / seconds
