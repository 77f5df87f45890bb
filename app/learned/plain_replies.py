"""Speeds of plain steps by reply, kept per model: how fast it is here, and how much that varies."""

import math
import statistics
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, cast

from app.learned.run_key import loaded_key, run_key
from app.paths import Paths
from backends.base import ModelInfo
from backends.engines.runner import Runner
from models.json_file import change_object, read_object

SCHEMA = 1
ENOUGH_PLAIN_STEPS = 48
"""Plain steps of a reply whose speed is kept; the reply may draft beside them."""

_MOST = 24
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

    @property
    def traffic(self) -> float:
        """Bytes read per second: comparable between replies in short and long contexts."""
        return self.rate * self.bytes_per_token


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
        """Replies of a loaded model in earlier sessions."""
        try:
            return cls.at(paths.plain_replies / f"{loaded_key(info)}.json")
        except OSError:
            return cls(None)

    @classmethod
    def at(cls, path: Path) -> Self:
        """Replies in a file, none if it cannot be read."""
        stored = read_object(path)
        return cls(path, _parsed(stored), _best(stored))

    def with_reply(self, reply: PlainReply) -> Self:
        """Add a reply, and those that other processes saved; a failure to save is ignored."""
        return self._with((reply,), reply.rate)

    def with_measured(self, rate: float) -> Self:
        """Take a rate into account that was measured without a reply, such as at load."""
        return self if rate <= (self.rate or 0.0) else self._with((), rate)

    def _with(self, new: tuple[PlainReply, ...], rate: float) -> Self:
        if self.path is None:
            return type(self)(None, (*self.replies, *new)[-_MOST:], max(self.best, rate))

        def changed(value: dict[str, Any]) -> dict[str, Any]:
            replies = (*_parsed(value), *new)[-_MOST:]
            return {
                "schema": SCHEMA,
                "replies": [[r.rate, r.bytes_per_token, r.noise] for r in replies],
                "best": max(_best(value), rate),
            }

        stored = change_object(self.path, changed)
        return type(self)(self.path, _parsed(stored), _best(stored))

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
        processors that other programs used too (scripts/measure_speedup_error.py).
        """
        noises = [reply.noise for reply in self.replies]
        return _UNKNOWN if len(noises) < _FEW else statistics.quantiles(noises, n=4)[-1]

    @property
    def spread(self) -> float:
        """Relative standard deviation between the speeds of replies that follow each other.

        For answers compared one after the other, as in a race; slow drift of the load is no part
        of it.
        """
        logs = [math.log(reply.traffic) for reply in self.replies]
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


def _best(value: dict[str, Any]) -> float:
    """The best rate of a file: the stored one, or that of its replies."""
    stored: Any = value.get("best") if value.get("schema") == SCHEMA else None
    is_sound = isinstance(stored, float) and 0.0 < stored < math.inf
    return max([stored if is_sound else 0.0, *(reply.rate for reply in _parsed(value))])


def _parsed(value: dict[str, Any]) -> tuple[PlainReply, ...]:
    """Replies of a file; malformed ones are left out."""
    stored: Any = value.get("replies") if value.get("schema") == SCHEMA else None
    replies: list[PlainReply] = []
    for entry in cast("list[Any]", stored)[-_MOST:] if isinstance(stored, list) else []:
        try:
            rate, count, noise = entry
            reply = PlainReply(float(rate), int(count), float(noise))
        except (TypeError, ValueError, OverflowError):
            continue
        sound = 0.0 < reply.rate < math.inf and 0.0 <= reply.noise < math.inf
        if sound and 0 < reply.bytes_per_token < 1 << 62:
            replies.append(reply)
    return tuple(replies)
