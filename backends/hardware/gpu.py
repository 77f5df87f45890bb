"""A GPU, as an engine reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU and its memory in bytes, None where the engine does not tell.

    is_unified: whether it shares the memory of the machine.
    """

    name: str
    free_bytes: int | None
    total_bytes: int | None
    is_unified: bool = False
