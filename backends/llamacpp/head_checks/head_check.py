"""The check of a draft head before llama.cpp sees it."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, parts, read_header
from backends.llamacpp.file_checks.header_assertions import broken_assertion
from backends.llamacpp.head_checks.assistant_check import assistant_check
from backends.llamacpp.head_checks.dflash_check import dflash_check
from backends.llamacpp.head_checks.eagle3_check import eagle3_check
from backends.llamacpp.head_checks.header_facts import Reasons
from backends.llamacpp.head_checks.prediction_check import prediction_check
from backends.llamacpp.head_checks.rotation import some_rotation
from backends.llamacpp.head_checks.safetensors_head import refuse_safetensors
from backends.llamacpp.head_checks.vectors import sound_vectors
from backends.llamacpp.head_checks.vocabularies import draftable_tokens, same_kind, same_tokens

_CHECKS: dict[str, Callable[[GgufHeader, GgufHeader], Reasons]] = {
    "eagle3": eagle3_check,
    "dflash": dflash_check,
    "gemma4-assistant": assistant_check,
}


def checked_head(path: Path, target: Path) -> GgufHeader:
    """Read the header of a head that llama.cpp can run beside a model.

    path: an EAGLE-3 or DFlash head, an assistant of Gemma 4, or a file with prediction layers,
    which may be the target's own.

    Raises:
        ModelError: a file is missing or damaged, or the two do not belong together.
    """
    refuse_safetensors(path)
    own = parts(path)[0]
    head, model = read_header(own), read_header(parts(target)[0])
    if reason := broken_assertion(head):
        raise ModelError(f"cannot draft with {path}", reason, "Choose another file.")
    check = _CHECKS.get(head.architecture, prediction_check)
    reasons = chain(
        same_kind(head, model),
        sound_vectors(head),
        some_rotation(head),
        check(head, model),
        draftable_tokens(head, own),
        same_tokens(own, parts(target)[0]),
    )
    if reason := next(reasons, ""):
        what = f"{path.name} cannot draft for {target.name}"
        raise ModelError(what, reason, "Choose a head that was made for this model.")
    return head
