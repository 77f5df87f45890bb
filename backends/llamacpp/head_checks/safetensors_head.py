"""Heads as they are published for other programs: a folder with safetensors.

What llama.cpp's converter reads of them, and what it leaves out: conversion/llama.py and
conversion/qwen.py of llama-cpp-python 0.3.36.
"""

from pathlib import Path

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedKind
from backends.files.head_folders.eagle3_layout import LAYER_IDS
from backends.files.head_folders.folder_drafter import kind_of
from backends.files.head_folders.stored_head import CONFIG, StoredHead, read_head

_SUFFIX = ".safetensors"
_NESTED = "eagle_config"
_OTHER = "Choose a head in GGUF."

_CONVERTED = {
    TrainedKind.EAGLE3: "an EAGLE-3 head",
    TrainedKind.DFLASH: "a DFlash drafter",
    TrainedKind.DSPARK: "a DSpark drafter",
}
"""Kinds that the converter knows."""


def refuse_safetensors(path: Path) -> None:
    """Refuse a head in safetensors, which llama.cpp cannot read; any other file passes.

    path: a folder, or its weight file.

    Raises:
        ModelError: it is such a head, with what to do about it.
    """
    if path.suffix != _SUFFIX and not path.is_dir():
        return
    head = read_head(path if path.is_dir() else path.parent)
    what, name = f"{path.name} cannot draft", _CONVERTED.get(kind_of(head) or TrainedKind.ASSISTANT)
    if name is None:
        raise ModelError(what, "llama.cpp reads heads in GGUF, and this is none", _OTHER)
    if lost := _lost(head):
        raise ModelError(what, f"llama.cpp's converter leaves out {lost} of this head", _OTHER)
    remedy = "Convert it: convert_hf_to_gguf.py of llama.cpp, with --target-model-dir."
    if _nested(head):
        remedy = (
            f"Move {LAYER_IDS} from {_NESTED} to the top of {CONFIG} with 1 added to each: there "
            f"they are read as inputs of layers, where they were outputs. {remedy}"
        )
    raise ModelError(what, f"it is {name} in safetensors, and llama.cpp reads GGUF", remedy)


def _lost(head: StoredHead) -> str:
    """A part without which a head drafts wrongly, and which the converter does not know."""
    if head.settings.values.get("norm_output"):
        return "a norm (norm_output)"
    if any(name.startswith("fc_norm.") for name in head.tensors):
        return "a norm (fc_norm)"
    return ""


def _nested(head: StoredHead) -> bool:
    """Whether the layers that a head reads are named where the converter does not look."""
    inner = head.settings.values.get(_NESTED)
    return isinstance(inner, dict) and LAYER_IDS in inner and not head.settings.has(LAYER_IDS)
