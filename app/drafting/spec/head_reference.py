"""Where the head is that a word of `--draft` asks for: in the model's file, beside it, or named."""

from contextlib import suppress
from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.files.gguf_drafter import TrainedKind
from models import catalogue
from models.catalogue import CatalogueDrafter, Entry
from models.metadata.trained_drafters import FoundDrafter, found_for
from models.reference import HubReference, Reference, entry_of
from models.stores.trained_files import downloaded_drafter, downloaded_folder

_NEXT = TrainedKind.NEXT_TOKEN_LAYERS
_FOR_ANOTHER = {
    LLAMACPP: "{} is for MLX, which runs the model's MLX folder",
    MLX: "{} is for llama.cpp, which runs the model's GGUF file",
}
"""Why a head is of no use to a backend."""


def head_beside(
    kind: TrainedKind, target: Path, backend: str | None = None, *, is_alone: bool = False
) -> Path | None:
    """The file or folder of the first head of a kind that a model brings, or that lies beside it.

    backend: the one that runs the model, by default the expected one. is_alone: only one in a file
    or folder of its own, as a model that streams leaves its own layers out.
    """
    found = _found(target, backend)
    fitting = (each for each in found if each.drafter.kind is kind and not each.misfit)
    paths = (each.path for each in fitting if each.drafter.is_alone or not is_alone)
    return next(paths, None)


def head_of_catalogue(
    kind: TrainedKind, target: Entry | None, folder: Path, backend: str = LLAMACPP
) -> Reference | HubReference | None:
    """The head that the catalogue names for a model, in a file or a folder of its own.

    None if it names none that the backend of the model reads. folder: the user's models folder.
    """
    known = _known(kind, target)
    if known is None or not known.runs_on(backend):
        return None
    if backend == MLX:
        found = downloaded_folder(known.mlx, folder)
        return Reference(known.mlx, found) if found else HubReference(known.mlx, known.mlx)
    if known.is_in_model:
        return None
    repository, file = known.repository, known.file
    found = downloaded_drafter(repository, file, folder) if file else None
    name = f"{repository}:{file}" if file else repository
    return Reference(found.name, found) if found else HubReference(name, repository, None, file)


def why_without(kind: TrainedKind, target: Path, backend: str = LLAMACPP) -> str:
    """Why a model has no head of a kind, in words."""
    found = _found(target, backend)
    for each in found:
        if each.drafter.kind is kind:
            why = each.misfit or "its own layers are left out of a model that streams"
            return f"{each.path.name}: {why}"
    known = _known(kind, entry_of(Reference(target.name, target)))
    if known is None:
        beside = "it brings none" if kind is _NEXT else "there is none beside it"
        others = [f"--draft {each.drafter.kind.word}" for each in found if not each.misfit]
        rather = f"; there is {', '.join(others)}" if others else ""
        return f"{beside}, and the catalogue names none{rather}"
    return why_not(known, backend) or "this file was made without them"


def why_not(known: CatalogueDrafter, backend: str) -> str:
    """Why a head of the catalogue is of no use to a model's backend; empty if it may be."""
    if not known.runs_on(backend):
        return _FOR_ANOTHER[backend].format(known.mlx or known.repository or "it")
    if backend == LLAMACPP and known.is_in_model and known.repository:
        return f"only the model's files in {known.repository} have them"
    return ""


def _found(target: Path, backend: str | None) -> list[FoundDrafter]:
    """What a model brings, and what lies beside it."""
    with suppress(ModelError):  # loading it tells what is wrong
        return found_for(target, backend) if target.exists() else []
    return []


def _known(kind: TrainedKind, target: Entry | None) -> CatalogueDrafter | None:
    return catalogue.drafter(kind.word, target) if target else None
