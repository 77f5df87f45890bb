"""What the name of a GGUF file says: which quantization, which part of how many."""

import re
from pathlib import PurePosixPath

_QUANTIZATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|F32|MXFP4(?:_MOE)?))"
    r"(?=$|[-.])",
    re.IGNORECASE,
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_NO_MODEL = re.compile(r"mmproj|imatrix|ggml-vocab", re.IGNORECASE)


def is_model_file(name: str) -> bool:
    """Whether a file is a GGUF model by its name: no projector of images, no importance matrix."""
    file = PurePosixPath(name).name
    return file.lower().endswith(".gguf") and not _NO_MODEL.search(file)


def stem(name: str) -> str:
    """A file's name without folder, suffix and the number of its part."""
    return _PART.sub("", PurePosixPath(name).stem)


def part(name: str) -> tuple[int, int]:
    """Which part of how many a file is, from 1; (1, 1) where it is whole."""
    found = _PART.search(PurePosixPath(name).stem)
    return (int(found[1]), int(found[2])) if found else (1, 1)


def quantization_of(name: str) -> str | None:
    """The quantization a file's name ends with, such as Q4_K_M, in capitals; None without one."""
    found = _QUANTIZATION.findall(stem(name))
    return str(found[-1]).upper() if found else None
