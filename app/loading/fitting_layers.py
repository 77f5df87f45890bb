"""How many layers of a model the GPUs of this machine can hold now."""

from pathlib import Path

from app.loading.gpu_split import GpuRoom, GpuSplit, fullest_split
from app.loading.memory_plan import SMALLEST_CONTEXT
from app.loading.session_options import DEFAULT_CONTEXT
from backends.engines.engine_resources import separate_gpus
from backends.streaming.weight_layout import weight_layout
from models.metadata.model_facts import facts_of


def fitting_layers(path: Path, backend: str) -> int | None:
    """Layers to put on GPUs, as the engine counts them; None for all, or where that is unknown.

    Raises:
        ModelError: the file is missing or damaged, or the engine cannot be started.
    """
    split = split_here(path, backend)
    return None if split is None or split.is_whole else split.gpu_layers


def split_here(path: Path, backend: str) -> GpuSplit | None:
    """Division of a model between GPUs and processor; None without GPUs whose memory is known.

    All layers go to GPUs if they fit with the smallest context; otherwise as many as fit with the
    usual one.

    Raises:
        ModelError: the file is missing or damaged, or the engine cannot be started.
    """
    gpus = separate_gpus(backend, None)
    if not gpus:
        return None
    facts, layout = facts_of(path, backend), weight_layout(path)
    room = GpuRoom(tuple(gpu.free_bytes or 0 for gpu in gpus))
    limit = facts.context_limit or DEFAULT_CONTEXT
    split = fullest_split(layout, facts, min(SMALLEST_CONTEXT, limit), room)
    if split.is_whole:
        return split
    return fullest_split(layout, facts, min(DEFAULT_CONTEXT, limit), room)
