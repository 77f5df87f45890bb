"""Lists a repository of the hub, whose answer is untrusted, and selects the files to download."""

import difflib
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from backends.base import DownloadError, UsageError
from models.byte_sizes import size_text
from models.hub.connection import Connection, refused, shorten
from models.hub.progress import HubSettings, Phase, Progress
from models.names import (
    is_drafter_file,
    is_model_file,
    part,
    projector_for,
    quantization_of,
    stem,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_PATH = 1000
_LONGEST_NAME = 200
"""In bytes; file systems allow 255."""
_RESERVED = frozenset('<>:"|?*\\')
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:\..*)?", re.I)


def is_safe(path: str) -> bool:
    """Whether a path stays in its folder and is valid on every system.

    Excludes absolute paths, `..`, drives, backslashes, device names and unprintable characters.
    """
    # Unpaired surrogates have no UTF-8; they are not printable either.
    if not path.isprintable() or len(path.encode()) > _LONGEST_PATH:
        return False
    return all(map(_is_safe_name, path.split("/")))


def require_distinct(wanted: Iterable[str], listed: Iterable[str]) -> None:
    """Check that wanted paths are distinct files on systems that ignore case and normalization."""
    paths = Counter(map(_folded, listed))
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    for path in wanted:
        folded = _folded(path)
        above = map(str, PurePosixPath(folded).parents)
        if paths[folded] > 1:
            raise ValueError(f"{path} is listed in two spellings")
        if folded in folders or any(folder in paths for folder in above):
            raise ValueError(f"{path} is listed as a file and as a folder")


def _is_safe_name(name: str) -> bool:
    return (
        0 < len(name.encode()) <= _LONGEST_NAME
        and name not in (".", "..")
        and not name.endswith((" ", "."))
        and _RESERVED.isdisjoint(name)
        and not _DEVICE.fullmatch(name)
    )


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


_LONGEST_LISTING = 8 << 20
"""Bytes; about 20,000 files."""
_MOST_FILES = 20_000
_MOST_VALUES = 500_000
"""Most JSON values: each takes about 70 bytes of memory, even if it is 2 bytes long."""
_LARGEST_FILE = 2**63 - 1
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    path: str
    size_bytes: int
    digest: str
    """SHA-256 of a large file, git's SHA-1 of a small one; the cache calls it the etag."""


@dataclass(frozen=True, slots=True)
class Repository:
    name: str
    commit: str
    files: tuple[RepositoryFile, ...]


def list_repository(
    name: str, connection: Connection, settings: HubSettings
) -> Generator[Progress, None, Repository]:
    from huggingface_hub.utils import validate_repo_id

    validate_repo_id(name)
    content = bytearray()
    with connection.get(f"{settings.endpoint}/api/models/{name}?blobs=true") as answer:
        if answer.status != 200:
            raise refused(answer, name, settings)
        for chunk in answer.chunks():
            content += chunk
            if len(content) > _LONGEST_LISTING:
                raise ValueError(f"the listing is longer than {_LONGEST_LISTING:,} bytes")
            yield Progress(Phase.ASKING)
    return parse_listing(name, bytes(content))


def parse_listing(name: str, content: bytes) -> Repository:
    """Parse a listing, without files that have no size or an unsafe path."""
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"the listing holds more than {_MOST_VALUES:,} values")
    try:
        listing = _object(json.loads(content), "listing")
    except RecursionError as error:
        raise ValueError("the listing is nested too deep") from error
    commit = _matching(_SHA1, listing.get("sha"), "commit")
    entries: object = listing.get("siblings") or []
    if not isinstance(entries, list):
        raise ValueError("the listing names no files")
    listed = cast("list[object]", entries)
    if len(listed) > _MOST_FILES:
        raise ValueError(f"the listing names more than {_MOST_FILES:,} files")
    files = tuple(file for file in map(_file, listed) if file)
    _require_consistent(files)
    return Repository(name, commit, files)


def _file(value: object) -> RepositoryFile | None:
    entry = _object(value, "file")
    path, size, lfs = entry.get("rfilename"), entry.get("size"), entry.get("lfs")
    if not isinstance(path, str):
        raise ValueError("a file without a name is listed")
    if size is None or not is_safe(path):
        return None
    if type(size) is not int or not 0 <= size <= _LARGEST_FILE:
        raise ValueError(f"{path} is listed with an invalid size")
    if lfs is None:
        return RepositoryFile(path, size, _matching(_SHA1, entry.get("blobId"), path))
    large = _object(lfs, path)
    if large.get("size", size) != size:
        raise ValueError(f"{path} is listed with two sizes")
    return RepositoryFile(path, size, _matching(_SHA256, large.get("sha256"), path))


def _require_consistent(files: tuple[RepositoryFile, ...]) -> None:
    paths: set[str] = set()
    sizes: dict[str, int] = {}
    for file in files:
        if file.path in paths:
            raise ValueError(f"{file.path} is listed twice")
        paths.add(file.path)
        if sizes.setdefault(file.digest, file.size_bytes) != file.size_bytes:
            raise ValueError(f"{file.path} is listed with the digest of a file of another size")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what}: not an object")
    return cast("dict[str, Any]", value)


def _matching(form: re.Pattern[str], value: object, what: str) -> str:
    """Digest in the expected form; it becomes part of a file name."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{what}: its digest is invalid")
    return value


DEFAULT_QUANTIZATION = "Q4_K_M"
_FOLDER_FILES = (
    "*.json", "*.safetensors", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt",
)  # fmt: skip
"""Excludes program code: `tokenizer*` would match tokenizer.py."""
_LONGEST_LIST = 800


@dataclass(frozen=True, slots=True)
class Variant:
    """GGUF model of a repository: one file, or its parts in order."""

    label: str
    """Quantization, or the file name if that names none."""
    files: tuple[RepositoryFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def files_wanted(repository: Repository, wanted: str | None) -> tuple[RepositoryFile, ...]:
    """Files to download: a GGUF model, its first part first, or those of an MLX folder.

    wanted: a quantization or a file name, in any case; None for Q4_K_M, or for the only model. A
    drafter trained for one model is downloaded where its file is named, or the repository has
    nothing else. A model that sees comes with its projector.
    """
    drafters = variants(repository, is_drafter_file)
    models = [each for each in drafters if _is_named(each, wanted)] or variants(repository)
    models = models or drafters
    if not models:
        return _folder(repository, wanted)
    chosen = _chosen(models, wanted)
    if len(chosen) != 1:
        raise _unclear(repository.name, models, chosen, wanted)
    files = chosen[0].files
    count = part(files[0].path)[1]
    if [part(file.path)[0] for file in files] != list(range(1, count + 1)):
        raise DownloadError(
            f"{repository.name} has {chosen[0].label} in {count} parts",
            f"only {len(files)} of them are available",
            "Choose another quantization.",
        )
    if not is_model_file(files[0].path):
        return files
    folder = PurePosixPath(files[0].path).parent
    beside = {one.path: one for one in repository.files if PurePosixPath(one.path).parent == folder}
    sizes = {path: file.size_bytes for path, file in beside.items()}
    projector = projector_for(files[0].path, sizes)
    return (*files, beside[projector]) if projector else files


def _is_named(variant: Variant, wanted: str | None) -> bool:
    return wanted is not None and any(
        wanted.lower() in (file.path.lower(), PurePosixPath(file.path).name.lower())
        for file in variant.files
    )


def variants(
    repository: Repository, is_wanted: "Callable[[str], bool]" = is_model_file
) -> list[Variant]:
    """GGUF models of a repository, or its other GGUF files, the smallest first."""
    groups: dict[str, list[RepositoryFile]] = {}
    for file in sorted(repository.files, key=lambda file: file.path):
        if is_wanted(file.path):
            folder = str(PurePosixPath(file.path).parent)
            key = f"{folder}/{stem(file.path)} {part(file.path)[1]}"
            groups.setdefault(key, []).append(file)
    models = (Variant(_label(files[0].path), tuple(files)) for files in groups.values())
    return sorted(models, key=lambda variant: variant.size_bytes)


def _label(path: str) -> str:
    return quantization_of(path) or stem(path)


def _chosen(models: list[Variant], wanted: str | None) -> list[Variant]:
    """Models that match a wish best: several if it is ambiguous, none without a match."""
    if wanted is None:
        return models if len(models) == 1 else _chosen(models, DEFAULT_QUANTIZATION)
    wish = wanted.lower()
    keys: tuple[Callable[[Variant], Iterable[str]], ...] = (
        lambda model: (file.path for file in model.files),
        lambda model: (PurePosixPath(file.path).name for file in model.files),
        lambda model: (stem(model.files[0].path),),
        lambda model: (model.label,),
        lambda model: (model.label.removeprefix("UD-"),),
    )
    for key in keys:
        matching = [model for model in models if wish in map(str.lower, key(model))]
        if matching:
            return matching
    return []


def _folder(repository: Repository, wanted: str | None) -> tuple[RepositoryFile, ...]:
    files = tuple(
        file
        for file in repository.files
        if "/" not in file.path and any(fnmatch(file.path, form) for form in _FOLDER_FILES)
    )
    if not any(file.path.endswith(".safetensors") for file in files):
        raise UsageError(
            f"{repository.name} holds no model that can be run here",
            "there is neither a GGUF file nor one of safetensors in it",
            "Look for a repository whose name ends in -GGUF.",
        )
    if wanted is not None:
        raise UsageError(
            f"{repository.name} has no {wanted}",
            "it is one folder of safetensors",
            "Name it alone.",
        )
    return files


def _unclear(
    repository: str, models: list[Variant], chosen: list[Variant], wanted: str | None
) -> UsageError:
    wish = wanted or DEFAULT_QUANTIZATION
    if chosen:
        paths = [f"{shorten(each.files[0].path)} ({size_text(each.size_bytes)})" for each in chosen]
        return UsageError(f"{repository} has several {wish}", _some(paths), "Name the file.")
    sizes = {each.label: f"{shorten(each.label)} ({size_text(each.size_bytes)})" for each in models}
    near = difflib.get_close_matches(wish.upper(), sizes, n=3, cutoff=0.5)
    nearest = f"nearest is {', '.join(sizes[label] for label in near)}; " if near else ""
    return UsageError(
        f"{repository} has no {wish}",
        f"{nearest}it has {_some(list(sizes.values()))}",
        f"Name one, for example {repository}:{near[0] if near else models[0].label}",
    )


def _some(names: list[str]) -> str:
    lengths = itertools.accumulate(len(name) for name in names)
    shown = max(1, sum(length <= _LONGEST_LIST for length in lengths))
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more else "")
