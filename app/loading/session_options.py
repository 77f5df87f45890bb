"""Options of a session: model, drafters, backend and resources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from backends.base import CacheType, UsageError
from backends.engines.backend_selection import REMOTE

DEFAULT_CONTEXT = 8192
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")
_MOST_THREADS = 512
"""llama.cpp's own limit; it crashes far above."""

DEFAULT_PARALLEL, MOST_PARALLEL = 4, 16
"""Requests that are answered at once; an engine's context has 17 sequences."""

RANGES = {
    "parallel": (1, MOST_PARALLEL),
    "ctx": (1, 1 << 30),
    "threads": (1, _MOST_THREADS),
    "gpu_layers": (0, 1 << 30),
}
"""Smallest and largest valid value of the numeric options."""

AUTO_DRAFT = "auto"
"""The --draft that leaves the choice of drafters to what was measured here."""

OFF_DRAFT = "off"
"""The --draft without drafters."""

STREAM_AUTO, STREAM_ON, STREAM_OFF = "auto", "on", "off"
"""Whether a model that does not fit in memory streams from disk: once that was agreed to, always,
or never."""

AUTO_LAYERS = "auto"
"""The --gpu-layers that puts as many layers on GPUs as fit."""

STREAM_CHOICES = (STREAM_AUTO, STREAM_ON, STREAM_OFF)

KV_CHOICES = tuple(map(str, CacheType))
"""Types of the KV cache."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session; None lets specchat choose.

    gpu_layers: as llama.cpp counts them: the output head is the first, the last layers follow.
    reserved: bytes that other models of this process hold, though they may seem free; no user's.
    parallel: most requests that are answered at once, each with room for a whole context as far as
    memory allows. None: a user's alone, as many as the cells of one context hold. url,
    remote_key_file: of the server that answers with the backend "remote". rpc: other machines for
    layers of the model, as HOST:PORT,…
    """

    model: str | None = None
    draft: str = AUTO_DRAFT
    backend: str = "auto"
    ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    kv: str | None = None
    stream: str = STREAM_AUTO
    offline: bool = False
    reserved: int = 0
    parallel: int | None = None
    url: str | None = None
    remote_key_file: str | None = None
    rpc: str | None = None

    @property
    def peers(self) -> list[tuple[str, int]]:
        """Hosts and ports of other machines. Raises UsageError: it is not a list of those."""
        given = [one.strip() for one in (self.rpc or "").split(",") if one.strip()]
        found = [_ADDRESS.fullmatch(one) for one in given]
        for text, match in zip(given, found, strict=True):
            if match is None or not 0 < int(match[2]) < 1 << 16:
                raise UsageError(f"--rpc cannot be {text!r}", "it is HOST:PORT, or several with ,")
        return [(match[1].strip("[]"), int(match[2])) for match in found if match]

    @property
    def local_layers(self) -> int | None:
        """gpu_layers of models that stay on this machine."""
        return None if self.peers else self.gpu_layers

    @property
    def asks_server(self) -> bool:
        """Whether a server answers in words; with a named drafter it verifies tokens instead."""
        return self.backend == REMOTE and self.draft in (AUTO_DRAFT, OFF_DRAFT)

    @property
    def cache_type(self) -> CacheType | None:
        return None if self.kv is None else CacheType(self.kv)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options among some values, as users and the settings file write them."""
        names = {field.name for field in fields(cls)} - {"reserved"}
        given = {name: value for name, value in values.items() if name in names}
        if given.get("gpu_layers") == AUTO_LAYERS:
            given["gpu_layers"] = None
        return cls(**given)


def check_ranges(options: SessionOptions) -> None:
    if options.peers and (options.gpu_layers == 0 or options.backend == REMOTE):
        beside = "--gpu-layers 0" if options.gpu_layers == 0 else f"--backend {REMOTE}"
        raise UsageError(f"--rpc cannot be used with {beside}", "no layer would go there")
    if options.stream not in STREAM_CHOICES:
        why = f"it is one of {', '.join(STREAM_CHOICES)}"
        raise UsageError(f"--stream cannot be {options.stream!r}", why)
    if options.kv is not None and options.kv not in KV_CHOICES:
        why = f"it is one of {', '.join(KV_CHOICES)}"
        raise UsageError(f"--kv cannot be {options.kv!r}", why)
    for name in RANGES:
        if (value := getattr(options, name)) is not None:
            check_range(name, value)


def check_range(name: str, value: float) -> None:
    least, most = RANGES[name]
    if not least <= value <= most:
        bounds = f"it is at least {least}, at most {most:,}"
        raise UsageError(f"--{name.replace('_', '-')} cannot be {value:,}", bounds)
