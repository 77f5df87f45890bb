"""How fast memory, disks and plain decoding are here, kept on disk."""

import hashlib
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from app.learned.store import Store, latest, loaded_key, number, parsed, run_key
from app.loading.model_list import Reach
from app.paths import Paths
from app.values import items
from backends.base import ModelInfo, OutOfMemoryError, SpecchatError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.engine_facts import Runner, bandwidth_of_mlx, expected_runner, gpus
from backends.hardware.bandwidth import Bandwidth, measured_on_cpu, of_gpu
from backends.hardware.host import processor_name
from backends.streaming.mapped_file import DiskSpeed, measured_disk_speed
from models.metadata.identity import stamp
from models.metadata.memory_bill import facts_of
from models.stores.available_models import installed


def memory_bandwidth(info: ModelInfo, paths: Paths) -> Bandwidth | None:
    """Bandwidth of the device that runs a model; None if it cannot be measured, or for several."""
    if info.gpu_layers is not None or info.device.startswith("RPC"):
        return None
    return _of_runner(Runner.of(info), info.backend, paths)


def _of_runner(runner: Runner, backend: str, paths: Paths) -> Bandwidth | None:
    if runner.device.startswith("GPU"):
        return mlx_bandwidth(paths) if backend == MLX else gpu_bandwidth()
    return processor_bandwidth(runner.threads, paths)


def processor_bandwidth(threads: int, paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """Bandwidth of the processor with this many threads, None if memory is too short to measure."""

    def measure() -> Bandwidth | None:
        try:
            return measured_on_cpu(threads)
        except OutOfMemoryError:
            return None

    return _cached(f"{processor_name()} {threads}", measure, paths, again=again)


def gpu_bandwidth() -> Bandwidth | None:
    """Nominal bandwidth of the GPUs that llama.cpp uses; None if unknown, or where they differ."""
    names = {gpu.name for gpu in gpus(LLAMACPP)}
    return of_gpu(*names) if len(names) == 1 else None


def mlx_bandwidth(paths: Paths, *, again: bool = False) -> Bandwidth | None:
    """Bandwidth of MLX's device, None if memory is too short to measure."""
    return _cached(f"{processor_name()} {MLX}", bandwidth_of_mlx, paths, again=again)


def _cached(
    device: str, measure: Callable[[], Bandwidth | None], paths: Paths, *, again: bool
) -> Bandwidth | None:
    """The highest bandwidth measured on a device; measures it the first time, or again.

    A measurement can only be too low, as other programs use memory too.
    """
    name = hashlib.sha256(device.encode()).hexdigest()[:16]
    store = Store(
        paths.bandwidth / f"{name}.json", None, lambda entry: Bandwidth(*_rate(entry)), asdict
    )
    cached = store.read()
    if cached is not None and not again:
        return cached
    measured = measure()
    if measured is None or (cached and cached.bytes_per_second >= measured.bytes_per_second):
        return cached
    store.write(measured)
    return measured


def _rate(entry: Any) -> tuple[float, str]:
    return number(entry["bytes_per_second"], is_positive=True), str(entry["source"])


def disk_speed(model: Path, paths: Paths) -> DiskSpeed | None:
    """Speed of reading a model's file, measured in under two seconds unless it was before.

    None if it cannot be measured.
    """
    try:
        key, device = stamp(model), model.stat().st_dev
    except OSError:
        return None
    store = _disks(paths)
    known = (store.read() or {}).get(key)
    if known is not None:
        return known[1]
    measured = measured_disk_speed(model)
    if measured is not None:
        store.change(lambda before: {**(before or {}), key: (device, measured)})
    return measured


def known_disk_speed(model: Path, paths: Paths) -> DiskSpeed | None:
    """Speed measured before on a model's file, else on the last file of its disk; None if none."""
    try:
        key, device = stamp(model), model.stat().st_dev
    except OSError:
        return None
    entries = _disks(paths).read() or {}
    if key in entries:
        return entries[key][1]
    beside = [speed for its_device, speed in entries.values() if its_device == device]
    return beside[-1] if beside else None


_Disks = dict[str, tuple[int, DiskSpeed]]
"""Device and speed of each measured file."""


def _disks(paths: Paths) -> Store[_Disks]:
    def parse(entry: Any) -> tuple[int, DiskSpeed]:
        return int(entry["device"]), DiskSpeed(*_rate(entry))

    def text(disks: _Disks) -> dict[str, Any]:
        kept = [*disks.items()][-_MOST_DISKS:]
        return {key: {"device": device, **asdict(speed)} for key, (device, speed) in kept}

    return Store(paths.disk_speeds, None, lambda value: latest(parse, value, _MOST_DISKS), text)


_MOST_DISKS = 200
SCHEMA = 1
"""Of plain replies."""

ENOUGH_PLAIN_STEPS = 48
"""Plain steps of a reply whose speed is kept; the reply may draft beside them."""

_MOST_REPLIES = 24
"""Replies kept: the latest ones, as the load of a machine changes."""

_UNKNOWN = 0.05
"""Relative noise and spread of a model that is new here."""

_FEW = 4
"""Replies from which noise is known; the unknown spread counts as many."""

_DEVIATIONS = 1.645
"""Upper decile of the absolute values of normally distributed ones, in standard deviations."""


@dataclass(frozen=True, slots=True)
class PlainReply:
    """The plain steps of a reply: tokens a second, and the bytes that a token read.

    noise: relative standard error that its rate would have over one second.
    """

    rate: float
    bytes_per_token: int
    noise: float


@dataclass(frozen=True, slots=True)
class PlainReplies:
    """The latest replies of a model on one engine build, device and number of threads."""

    path: Path | None
    """None where they cannot be kept."""
    replies: tuple[PlainReply, ...] = ()
    best: float = 0.0
    """Most tokens a second that were measured here; 0 before the first measurement."""

    @classmethod
    def of(cls, info: ModelInfo, paths: Paths) -> Self:
        try:
            return cls.at(paths.plain_replies / f"{loaded_key(info)}.json")
        except OSError:
            return cls(None)

    @classmethod
    def at(cls, path: Path) -> Self:
        replies, best = _store(path).read() or ((), 0.0)
        return cls(path, replies, best)

    def with_reply(self, reply: PlainReply) -> Self:
        """Add a reply, and those that other processes saved; a failure to save is ignored."""
        return self._with((reply,), reply.rate)

    def with_measured(self, rate: float) -> Self:
        """Take a rate into account that was measured without a reply, such as at load."""
        return self if rate <= (self.rate or 0.0) else self._with((), rate)

    def _with(self, new: tuple[PlainReply, ...], rate: float) -> Self:
        def added(before: _Kept | None) -> _Kept:
            replies, best = before or ((), 0.0)
            return (*replies, *new)[-_MOST_REPLIES:], max(best, rate)

        if self.path is None:
            return type(self)(None, *added((self.replies, self.best)))
        return type(self)(self.path, *_store(self.path).change(added))

    @property
    def rate(self) -> float | None:
        """Tokens a second of plain decoding: the best ever measured; None without a measurement.

        A measurement can only be too low, as other programs run too.
        """
        return max([self.best, *(reply.rate for reply in self.replies)]) or None

    @property
    def noise(self) -> float:
        """Relative standard error of the speed over one second within a reply.

        The upper quartile of the replies, as noise comes in bursts. With it, and a reply's own
        noise where that is larger, 96 % of 1,440 speedups were right within their error, on two
        processors that other programs used too.
        """
        noises = [reply.noise for reply in self.replies]
        return _UNKNOWN if len(noises) < _FEW else statistics.quantiles(noises, n=4)[-1]

    @property
    def spread(self) -> float:
        """Relative standard deviation between the speeds of replies that follow each other.

        For answers compared one after the other, as in a race; slow drift of the load is no part
        of it.
        """
        # Bytes a second are comparable between replies in short and long contexts.
        logs = [math.log(reply.rate * reply.bytes_per_token) for reply in self.replies]
        changes = [abs(later - earlier) for earlier, later in pairwise(logs)]
        if len(changes) < 2:
            return _UNKNOWN
        upper = statistics.quantiles(changes, n=10, method="inclusive")[-1]
        measured = upper / _DEVIATIONS / math.sqrt(2.0)
        squares = len(changes) * measured**2 + _FEW * _UNKNOWN**2
        return math.sqrt(squares / (len(changes) + _FEW))


def rate_beside(path: Path, info: ModelInfo, paths: Paths) -> float | None:
    """Tokens a second that a model reached on what runs the loaded model info; None if unknown."""
    try:
        key = run_key(path, "", replace(Runner.of(info), streamed_tenths=0))
    except OSError:
        return None
    return PlainReplies.at(paths.plain_replies / f"{key}.json").rate


def reach_here(paths: Paths) -> Reach | None:
    """What the largest model that has answered here tells of others; None before one has."""
    if not paths.plain_replies.is_dir():  # else the engines would be looked at for nothing
        return None
    largest_first = sorted(installed(paths.models), key=lambda one: one.size_bytes, reverse=True)
    known = (_reach_of(one.path, by, paths) for by in (LLAMACPP, MLX) for one in largest_first)
    return next(filter(None, known), None)


def _reach_of(model: Path, backend: str, paths: Paths) -> Reach | None:
    try:
        runner = expected_runner(backend, None, None)
        key = run_key(model, "", runner)
        rate = PlainReplies.at(paths.plain_replies / f"{key}.json").rate
        read = facts_of(model, backend).read_bytes if rate else 0
    except (OSError, SpecchatError):
        return None
    bandwidth = _of_runner(runner, backend, paths) if rate else None
    return Reach.measured(bandwidth.bytes_per_second if bandwidth else None, rate, read)


_Kept = tuple[tuple[PlainReply, ...], float]
"""Replies, and the best rate."""


def _store(path: Path) -> Store[_Kept]:
    return Store(path, SCHEMA, _kept, _record)


def _record(kept: _Kept) -> dict[str, Any]:
    replies, best = kept
    return {"replies": [[r.rate, r.bytes_per_token, r.noise] for r in replies], "best": best}


def _kept(value: dict[str, Any]) -> _Kept:
    entries = items(value.get("replies"))[-_MOST_REPLIES:]
    replies = tuple(filter(None, (parsed(_reply, entry) for entry in entries)))
    best: Any = value.get("best")
    is_sound = isinstance(best, float) and 0.0 < best < math.inf
    return replies, max([best if is_sound else 0.0, *(reply.rate for reply in replies)])


def _reply(entry: Any) -> PlainReply:
    rate, count, noise = entry
    reply = PlainReply(number(rate, is_positive=True), int(count), number(noise))
    if not 0 < reply.bytes_per_token < 1 << 62:
        raise ValueError
    return reply
