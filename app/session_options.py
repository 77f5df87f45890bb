"""What a session is to run, and how, as the user asked for it."""

from dataclasses import dataclass

from app import draft_spec
from backends.base import UsageError

DEFAULT_CONTEXT = 8192
_MOST_THREADS = 512
"""llama.cpp's own limit; it crashes far above."""

RANGES = {"ctx": (1, 1 << 30), "threads": (1, _MOST_THREADS), "gpu_layers": (0, 1 << 30)}
"""The least and the most of the options that are numbers."""


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
    for name in RANGES:
        if (value := getattr(options, name)) is not None:
            check_range(name, value)


def check_range(name: str, value: float) -> None:
    """Refuse a number that the option of this name cannot be.

    Raises:
        UsageError: it is out of range.
    """
    least, most = RANGES[name]
    if not least <= value <= most:
        bounds = f"it is at least {least}, at most {most:,}"
        raise UsageError(f"--{name.replace('_', '-')} {value} is out of range", bounds)
