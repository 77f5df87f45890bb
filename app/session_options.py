"""What a session is to run, and how, as the user asked for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app import draft_spec
from backends.base import UsageError

DEFAULT_CONTEXT = 8192
_MOST_THREADS = 512
"""llama.cpp's own limit; it crashes far above."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What to run, and how. None leaves the choice to specchat."""

    model: str | None = None
    draft: str = draft_spec.AUTO
    backend: str = "auto"
    ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    offline: bool = False


def check_ranges(options: SessionOptions) -> None:
    """Refuse numbers that no model can be run with.

    Raises:
        UsageError: one is out of range.
    """
    ranges: Sequence[tuple[str, int | None, int, int]] = (
        ("--ctx", options.ctx, 1, 1 << 30),
        ("--threads", options.threads, 1, _MOST_THREADS),
        ("--gpu-layers", options.gpu_layers, 0, 1 << 30),
    )
    for name, value, least, most in ranges:
        if value is not None and not least <= value <= most:
            bounds = f"it is at least {least}, at most {most:,}"
            raise UsageError(f"{name} {value} is out of range", bounds)
