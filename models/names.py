"""Names of models as people type them, and what names of GGUF files tell."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

_FORM = r"(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|F32|MXFP4(?:_MOE)?)"
_QUANTIZATION = re.compile(rf"(?:^|[-._])({_FORM})(?=$|[-.])", re.IGNORECASE)
_LAST_FORM = re.compile(rf"[-._](?:{_FORM}|\d+bit)$", re.IGNORECASE)
_GGUF = ".gguf"
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_NO_MODEL = re.compile(r"mmproj|imatrix|ggml-vocab", re.IGNORECASE)
_PROJECTOR = re.compile(r"mmproj.*\.gguf$", re.IGNORECASE)
_TRAINED_DRAFTER = re.compile(
    r"^(?:mtp|eagle3|dflash|dspark)-|-(?:dflash2?|dspark)[-.]", re.IGNORECASE
)


def simplified(name: str) -> str:
    """Name without case and punctuation: Llama 3 8B becomes llama38b."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names similar to this one, the nearest first."""
    by_simple: dict[str, str] = {}
    for candidate in known:
        by_simple.setdefault(simplified(candidate), candidate)
    near = difflib.get_close_matches(simplified(name), by_simple, n=3, cutoff=0.5)
    return [by_simple[simple] for simple in near]


def is_model_file(name: str) -> bool:
    """Whether a file is a GGUF model by its name.

    Image projectors, importance matrices and drafters trained for one model are none.
    """
    file = PurePosixPath(name).name
    is_other = _NO_MODEL.search(file) or is_trained_drafter(name)
    return file.lower().endswith(_GGUF) and not is_other


def projector_for(model: str, files: Mapping[str, int]) -> str | None:
    """Of files with their sizes, the projector for a model's images; None if there is none.

    It is the one whose name is most like the model's, and the smallest of its quantizations.
    """
    called = simplified(model_called(model))

    def unlike(file: str) -> tuple[float, int]:
        name = simplified(model_called(file)).replace("mmproj", "")
        return -difflib.SequenceMatcher(None, called, name).ratio(), files[file]

    found = (file for file in files if _PROJECTOR.search(PurePosixPath(file).name))
    return min(found, key=unlike, default=None)


def is_drafter_file(name: str) -> bool:
    return name.lower().endswith(_GGUF) and is_trained_drafter(name)


def is_trained_drafter(name: str) -> bool:
    """Whether a file is a drafter trained for one model, by its name.

    Publishers name it as llama.cpp expects (common/download.cpp), or after the model.
    """
    return _TRAINED_DRAFTER.search(PurePosixPath(name).name) is not None


def stem(name: str) -> str:
    """File name without folder, suffix and part number."""
    return _PART.sub("", PurePosixPath(name).stem)


def model_called(name: str) -> str:
    """Name of the model in a file or folder: without part number and quantization at its end."""
    whole = PurePosixPath(name).name
    whole = whole[: -len(_GGUF)] if whole.lower().endswith(_GGUF) else whole
    return _LAST_FORM.sub("", _PART.sub("", whole))


def part(name: str) -> tuple[int, int]:
    """Number of a file among the parts of its model, and their count; (1, 1) for a whole model."""
    match = _PART.search(PurePosixPath(name).stem)
    return (int(match[1]), int(match[2])) if match else (1, 1)


def quantization_of(name: str) -> str | None:
    """Quantization that a file name ends with, such as Q4_K_M, in capitals; None without one."""
    matches = _QUANTIZATION.findall(stem(name))
    return str(matches[-1]).upper() if matches else None
