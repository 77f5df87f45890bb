"""Facts of this machine that decide which backend runs a model."""

import platform
import sys
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Machine:
    """Kind of processor, and the installed backends, whether they start or not."""

    is_apple_silicon: bool
    has_llamacpp: bool
    has_mlx: bool


def this_machine() -> Machine:
    """Facts of the present machine, without importing an engine."""
    return Machine(
        is_apple_silicon=sys.platform == "darwin" and platform.machine() == "arm64",
        has_llamacpp=_is_installed("llama_cpp"),
        has_mlx=_is_installed("mlx") and _is_installed("mlx_lm"),
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a module blocked in sys.modules has no spec
        return False
