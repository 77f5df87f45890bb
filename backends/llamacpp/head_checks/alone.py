"""Files that draft for another model and cannot answer by themselves."""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import is_whole, prediction_layers, tensor

_HEADS = {
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash head",
    "gemma4-assistant": "an assistant of Gemma 4",
}


def why_not_alone(header: GgufHeader) -> str:
    """Why a file is no model of its own, as the rest of a sentence; "" if it is one.

    A file with prediction layers but no first layer loads, and the first pass ends the process.
    """
    if header.architecture in _HEADS:
        kind = _HEADS[header.architecture]
        return f"it is {kind}, which drafts for another model and cannot answer alone"
    lacks_trunk = is_whole(header) and tensor(header, "blk.0.attn_norm.weight") is None
    if prediction_layers(header) > 0 and lacks_trunk:
        return "it has the prediction layers of a model without the model"
    return ""
