"""Trained heads as files: published folders of safetensors, and GGUF made from these."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Form
from numpy.typing import NDArray

from backends.base import DiskFullError, UsageError
from backends.base.safe_files import make_private_folder, private_opener, write_whole
from training.heads.eagle3 import Eagle3
from training.heads.last_state import LastState
from training.source import LAYER, neighboured

Values = dict[str, NDArray[Any]]
HEAD, GGUF = "model.safetensors", "head.gguf"
_CONTEXT = 8192
"""Positions that the layer's rotation is used for at most, as told; nothing ends there."""
_BLOCK = 32
"""Numbers that a quantized form stores together."""
_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def export(net: Eagle3 | LastState, weights: Mapping[str, Any], folder: Path) -> None:
    """Write a head as the engines read it.

    Files: config.json, model.safetensors, and head.gguf of an EAGLE-3 head whose target is GGUF.

    Raises:
        UsageError: no engine runs the method.
        DiskFullError: it cannot be written.
    """
    settings = net.settings
    if settings.method == "eagle1" or settings.is_parallel:
        raise UsageError("the head cannot be written", "no engine drafts with its method")
    try:
        make_private_folder(folder)
        if isinstance(net, LastState):
            _write_folder(folder, *_last_state(net, net.for_file(weights)))
            return
        tensors = _eagle3(net, net.for_file(weights))
        _write_folder(folder, _eagle3_config(net), tensors)
        if net.source.path.is_file():
            write_gguf(folder / GGUF, net, tensors)
    except OSError as error:
        raise DiskFullError(f"the head cannot be written to {folder}", str(error)) from error


def _common(net: Eagle3 | LastState) -> Values:
    """What tells the tokens, of either kind. d2t: distances from a token's number to its id."""
    drafted, n_vocab = net.vocabulary.drafted, net.source.n_vocab
    known = np.zeros(n_vocab, bool)
    known[drafted] = True
    return {
        "lm_head.weight": net.source.output[drafted].astype(np.float32),
        "d2t": drafted - np.arange(len(drafted)),
        "t2d": known,
    }


def _config(net: Eagle3 | LastState, architecture: str, kind: str) -> dict[str, Any]:
    shape = net.source.shape
    return {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "vocab_size": net.source.n_vocab,
        "draft_vocab_size": len(net.vocabulary.drafted),
        "rms_norm_eps": shape.epsilon,
    }


def _last_state(net: LastState, weights: Values) -> tuple[dict[str, Any], Values]:
    common = _common(net)
    del common["t2d"]
    if net.settings.rank:
        del common["lm_head.weight"]
    config = _config(net, "SpecchatLastStateHead", "last_state")
    return config | {"method": net.settings.method, "num_heads": net.n_heads}, common | weights


def _eagle3_config(net: Eagle3) -> dict[str, Any]:
    shape = net.source.shape
    return _config(net, "LlamaForCausalLMEagle3", "llama") | {
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "rope_theta": shape.base,
        "max_position_embeddings": _CONTEXT,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "target_hidden_size": shape.width,
        "eagle_aux_hidden_state_layer_ids": list(net.taps),
        "norm_before_residual": False,
    }


def _eagle3(net: Eagle3, weights: Values) -> Values:
    common = _common(net)
    if net.settings.rank:
        common["lm_head.weight"] = weights.pop("lm_head.up") @ weights.pop("lm_head.down")
    return {f"{name}.weight": values for name, values in weights.items()} | common


def _write_folder(folder: Path, config: Mapping[str, Any], tensors: Values) -> None:
    header: dict[str, Any] = {}
    data: list[bytes] = []
    place = 0
    for name, values in tensors.items():
        is_matrix = values.ndim > 1
        stored = values.astype(np.float16) if is_matrix else values
        data.append(np.ascontiguousarray(stored).tobytes())
        end = place + len(data[-1])
        kind, shape = _TYPES[str(stored.dtype)], list(stored.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        place = end
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    write_whole(folder / HEAD, b"".join([struct.pack("<Q", len(head)), head, *data]))
    write_whole(folder / "config.json", json.dumps(config, indent=2))


_NAMES = {"fc": "fc", "norm": "output_norm", "lm_head": "output"} | {
    f"midlayer.{name}": f"blk.0.{theirs}" for name, theirs in LAYER.items()
}
_NAMES["midlayer.hidden_norm"] = "blk.0.attn_norm_2"


def write_gguf(
    path: Path, net: Eagle3, tensors: Values, layer: Form = Form.Q8_0, output: Form = Form.Q8_0
) -> None:
    """The same for llama.cpp: src/models/eagle3.cpp. layer, output: forms of their matrices."""
    shape = net.source.shape
    with open(path, "wb", opener=private_opener):
        pass
    writer = gguf.GGUFWriter(path, "eagle3")
    for name, entry in gguf.GGUFReader(net.source.path).fields.items():
        if name.startswith("tokenizer."):
            inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    writer.add_name(f"EAGLE-3 head for {net.source.path.stem}")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.base)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_array("eagle3.target_layers", list(net.taps))
    writer.add_uint32("eagle3.target_hidden_size", shape.width)
    for name, theirs in _NAMES.items():
        values = tensors[f"{name}.weight"]
        if theirs.endswith(("attn_q", "attn_k")):
            values = neighboured(values, shape.heads if theirs.endswith("q") else shape.kv_heads)
        form = output if name == "lm_head" else layer
        if values.ndim == 1:
            form = Form.F32
        elif values.shape[-1] % _BLOCK:
            form = Form.F16
        stored = gguf.quantize(np.ascontiguousarray(values, np.float32), form)
        writer.add_tensor(f"{theirs}.weight", stored, raw_dtype=form)
    writer.add_tensor("d2t", net.vocabulary.drafted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
