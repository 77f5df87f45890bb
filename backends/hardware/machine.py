"""What of this machine decides which backend runs a model."""

import platform
import sys
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Machine:
    """Its processor, and the backends that are installed, whether they start or not."""

    is_apple_silicon: bool
    has_llamacpp: bool
    has_mlx: bool


def this_machine() -> Machine:
    """The one that runs this program. No engine is imported for it."""
    return Machine(
        is_apple_silicon=sys.platform == "darwin" and platform.machine() == "arm64",
        has_llamacpp=_is_installed("llama_cpp"),
        has_mlx=_is_installed("mlx") and _is_installed("mlx_lm"),
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # what is blocked in sys.modules has no description
        return False
