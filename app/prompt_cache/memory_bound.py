"""How much memory copies of prompt caches may take."""

from collections.abc import Callable

from app.paths import Paths
from app.settings.in_effect import settings_in_effect
from app.settings.prompt_memory import DEFAULT_PROMPT_MEMORY
from backends.hardware.host import available_memory

_SHARE_OF_FREE = 0.25
"""Share of the memory that would be free without the copies. A guess; not measured."""


def memory_bound(paths: Paths) -> Callable[[int], int]:
    """The bound in bytes at any time, given the bytes of the copies then held."""
    setting = settings_in_effect(paths).values.get("prompt_memory", DEFAULT_PROMPT_MEMORY)
    most = int(setting) * 1_000_000
    return lambda held: min(most, int(_SHARE_OF_FREE * (available_memory() + held))) if most else 0
