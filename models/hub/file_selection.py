"""Selecting the files of a repository to download."""

import difflib
import itertools
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from backends.base import DownloadError, UsageError
from models.byte_sizes import size_text
from models.hub.error_mapping import shorten
from models.hub.repository import Repository, RepositoryFile
from models.model_names import is_drafter_file, is_model_file, part, quantization_of, stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
        """Total size of all parts."""
        return sum(file.size_bytes for file in self.files)


def files_wanted(repository: Repository, wanted: str | None) -> tuple[RepositoryFile, ...]:
    """Files to download: a GGUF model, its first part first, or those of an MLX folder.

    wanted: a quantization or a file name, in any case; None for Q4_K_M, or for the only model. A
    drafter trained for one model is downloaded where its file is named, or the repository has
    nothing else.

    Raises:
        UsageError: no model or several models match; the error lists them with their sizes.
        DownloadError: parts are missing in the repository.
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
    return files


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
    nearest = f"nearest: {', '.join(sizes[label] for label in near)}; " if near else ""
    return UsageError(
        f"{repository} has no {wish}",
        f"{nearest}it has {_some(list(sizes.values()))}",
        f"Name one, for example {repository}:{near[0] if near else models[0].label}",
    )


def _some(names: list[str]) -> str:
    """List of names, shortened to fit a message."""
    lengths = itertools.accumulate(len(name) for name in names)
    shown = max(1, sum(length <= _LONGEST_LIST for length in lengths))
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more else "")
