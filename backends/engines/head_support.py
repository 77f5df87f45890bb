"""Whether a trained drafter can be run beside a model, by their headers."""

from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_import import importing_engine
from backends.files.gguf_drafter import TrainedDrafter

_FILE_FOR_MLX = "MLX reads heads in folders of safetensors, and this is a file"


def refuse_unread_head(path: Path, backend: str = LLAMACPP) -> None:
    """Refuse a head in a form that the backend of its model does not read.

    Raises:
        ModelError: it is in such a form, with what to do about it.
    """
    if backend == MLX:
        if path.is_file():
            remedy = "Use the model's GGUF file with --backend llamacpp, or the head's folder."
            raise ModelError(f"{path.name} cannot draft", _FILE_FOR_MLX, remedy)
        return
    with importing_engine(LLAMACPP):
        from backends.llamacpp.head_checks.safetensors_head import refuse_safetensors
    refuse_safetensors(path)


def head_refusal(drafter: TrainedDrafter, architecture: str, backend: str = LLAMACPP) -> str:
    """Why a head cannot draft for a model of an architecture, in words; empty if it may.

    backend: that of the model. What MLX's layers of a model give to a head is found out with it.
    """
    if backend == MLX:
        return ""
    try:
        with importing_engine(LLAMACPP):
            from backends.llamacpp.head_checks.drafter_support import unsupported
    except ModelError as error:
        return error.summary
    return unsupported(drafter, architecture)
