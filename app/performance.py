"""Figures that need more than the reply's own events: plain rate, speedup, wall, energy, memory."""

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.paths import Paths
from backends.bandwidth import Bandwidth, measured_on_cpu, of_gpu
from backends.base import ModelInfo, OutOfMemoryError
from backends.choice import MLX, bandwidth_of_mlx
from backends.device import peak_memory_bytes, processor_name
from decoding.telemetry import Statistics
from models.json_file import read_object, write_object

if TYPE_CHECKING:
    from app.reply import Reply
    from app.session import Session

ENOUGH_TOKENS = 64
"""Shortest reply whose speed is worth comparing; shorter ones are too noisy."""

_ENOUGH_PLAIN_STEPS = 3
"""Plain steps of a reply whose mean stands for plain decoding."""

_ENOUGH_STEPS = 12
"""Steps of any kind after which the measured costs have followed the machine."""


def memory_bandwidth(info: ModelInfo, paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """Of the device a model runs on; measured once, or again where asked, where it can be.

    Whatever else runs takes from a measurement, so that the highest one is kept.
    """
    if info.device.startswith("GPU"):
        return mlx_bandwidth(paths, again=again) if info.backend == MLX else of_gpu()
    return processor_bandwidth(info.threads, paths, again=again)


def processor_bandwidth(threads: int, paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """What threads of the processor read in a second, None where there is no memory to try."""

    def measure() -> Bandwidth | None:
        try:
            return measured_on_cpu(threads)
        except OutOfMemoryError:
            return None

    return _kept(f"{processor_name()} {threads}", measure, paths, again=again)


def mlx_bandwidth(paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """What MLX's own device reads in a second, None where there is no memory to try."""
    return _kept(f"{processor_name()} {MLX}", bandwidth_of_mlx, paths, again=again)


def _kept(
    place: str, measure: Callable[[], Bandwidth | None], paths: Paths, *, again: bool
) -> Bandwidth | None:
    """The highest that was measured in a place; it is measured if it never was, or again."""
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    path = paths.bandwidth / f"{name}.json"
    known = _known(read_object(path))
    if known is not None and not again:
        return known
    found = measure()
    if found is None or (known and known.bytes_per_second >= found.bytes_per_second):
        return known
    entry = {"bytes_per_second": found.bytes_per_second, "source": found.source}
    write_object(path, entry)
    return found


def _known(entry: dict[str, Any]) -> Bandwidth | None:
    rate, source = entry.get("bytes_per_second"), entry.get("source")
    if isinstance(rate, float) and 0.0 < rate < math.inf and isinstance(source, str):
        return Bandwidth(rate, source)
    return None


def plain_rate(session: "Session", statistics: Statistics) -> tuple[float | None, str | None]:
    """Tokens per second of plain decoding at this load, and where the figure comes from."""
    controller = session.drafting.controller
    if controller is None or statistics.drafted == 0:
        rate = statistics.decode_tokens_per_second
        return rate, None if rate is None else "this reply, which is plain"
    if statistics.plain_steps >= _ENOUGH_PLAIN_STEPS:
        rate = statistics.plain_steps / statistics.plain_step_seconds
        return rate, f"{statistics.plain_steps} plain steps of this reply"
    if statistics.steps < _ENOUGH_STEPS:
        return None, None
    return (
        1.0 / controller.costs.seconds(1),
        "measured when the model was loaded, corrected by the steps of this reply",
    )


def performance(session: "Session", reply: "Reply") -> dict[str, Any]:
    """The figures by their names in JSON; what was not measured is None."""
    statistics = reply.statistics
    rate = statistics.decode_tokens_per_second
    plain, plain_source = plain_rate(session, statistics)
    context = session.context
    bytes_per_token = (
        session.model.info.bytes_read_per_token + context.length * context.kv_bytes_per_token
    )
    bandwidth = session.bandwidth
    wall = bandwidth.bytes_per_second / bytes_per_token if bandwidth else None
    decoded = statistics.completion_tokens - 1
    joules = reply.joules if decoded > 0 else None
    return {
        "plain_tokens_per_second": plain,
        "plain_source": plain_source,
        "speedup": rate / plain if rate and plain else None,
        "bytes_per_token": bytes_per_token,
        "bandwidth_bytes_per_second": bandwidth.bytes_per_second if bandwidth else None,
        "bandwidth_source": bandwidth.source if bandwidth else None,
        "wall_tokens_per_second": wall,
        "times_wall": rate / wall if rate and wall else None,
        "energy_joules_per_token": None if joules is None else joules / decoded,
        "energy_source": session.meter.source if session.meter and joules is not None else None,
        "peak_memory_bytes": peak_memory_bytes(),
        "memory": {
            "target_bytes": session.model.info.weight_bytes,
            "drafter_bytes": session.drafting.drafter_bytes,
            "kv_bytes": context.n_ctx * context.kv_bytes_per_token + session.drafting.kv_bytes,
        },
    }
