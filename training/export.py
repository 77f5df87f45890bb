"""Trained heads as files: published folders of safetensors, and GGUF made from these."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Form

from backends.base import DiskFullError, UsageError
from backends.base.safe_files import make_private_folder, write_whole
from training.copies import add, finish, writer_as
from training.heads.eagle3 import BLOCK, Eagle3
from training.heads.last_state import LastState
from training.source import LAYER, neighboured
from training.stored import Stored

HEAD, GGUF = "model.safetensors", "head.gguf"
_CONTEXT = 8192
"""Positions that the layer's rotation is used for at most, as told; nothing ends there."""
_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}
_OUTPUT = "lm_head.weight"
PUBLISHED = {
    "output_norm.weight": "norm.weight",
    f"{BLOCK}attn_norm_2.weight": "midlayer.hidden_norm.weight",
    **{f"{BLOCK}{ours}.weight": f"midlayer.{theirs}.weight" for ours, theirs in LAYER.items()},
}


def export(net: Eagle3 | LastState, weights: Mapping[str, Any], folder: Path) -> None:
    """Write a head as the engines read it.

    Files: config.json, model.safetensors, and head.gguf of an EAGLE-3 head whose target is GGUF.

    Raises:
        UsageError: no engine runs the method.
        DiskFullError: it cannot be written.
    """
    settings, tensors = net.settings, net.for_file(weights)
    if settings.method == "eagle1" or settings.is_parallel:
        raise UsageError("the head cannot be written", "no engine drafts with its method")
    drafted = net.drafted
    output = {_OUTPUT: net.source.output[drafted].astype(np.float32)}
    numbers: Stored = {"d2t": drafted - np.arange(len(drafted))}
    try:
        make_private_folder(folder)
        if isinstance(net, LastState):
            output = {} if settings.rank else output
            _write_folder(folder, _last_state_config(net), output | numbers | tensors)
            return
        if settings.rank:
            output = {_OUTPUT: tensors.pop("lm_head.up") @ tensors.pop("lm_head.down")}
        numbers["t2d"] = np.isin(np.arange(net.source.n_vocab), drafted)
        named = {PUBLISHED.get(name, name): values for name, values in tensors.items()}
        _write_folder(folder, _eagle3_config(net), output | numbers | named)
        if net.source.path.is_file():
            write_gguf(folder / GGUF, net, {**tensors, "output.weight": output[_OUTPUT]})
    except OSError as error:
        raise DiskFullError(f"the head cannot be written to {folder}", str(error)) from error


def _config(net: Eagle3 | LastState) -> dict[str, Any]:
    shape = net.source.shape
    return {
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "vocab_size": net.source.n_vocab,
        "draft_vocab_size": len(net.drafted),
        "rms_norm_eps": shape.epsilon,
    }


def _last_state_config(net: LastState) -> dict[str, Any]:
    return _config(net) | {
        "architectures": ["SpecchatLastStateHead"],
        "model_type": "last_state",
        "method": net.settings.method,
        "num_heads": net.n_heads,
    }


def _eagle3_config(net: Eagle3) -> dict[str, Any]:
    shape = net.source.shape
    return _config(net) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
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


def _write_folder(folder: Path, config: Mapping[str, Any], tensors: Stored) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, place = list[bytes](), 0
    for name, values in tensors.items():
        stored = values.astype(np.float16) if values.ndim > 1 else values
        data.append(np.ascontiguousarray(stored).tobytes())
        end = place + len(data[-1])
        kind, shape = _TYPES[str(stored.dtype)], list(stored.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        place = end
    head = json.dumps(header).encode()
    write_whole(folder / HEAD, b"".join([struct.pack("<Q", len(head)), head, *data]))
    write_whole(folder / "config.json", json.dumps(config, indent=2))


def write_gguf(
    path: Path, net: Eagle3, tensors: Stored, layer: Form = Form.Q8_0, output: Form = Form.Q8_0
) -> None:
    """The same for llama.cpp: src/models/eagle3.cpp. layer, output: forms of their matrices."""
    shape, reader = net.source.shape, gguf.GGUFReader(net.source.path)
    writer = writer_as(reader, path, "eagle3", "tokenizer.")
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
    for name, values in tensors.items():
        stored = values
        if name.startswith((f"{BLOCK}attn_q.", f"{BLOCK}attn_k.")):
            stored = neighboured(values, shape.heads if "attn_q" in name else shape.kv_heads)
        form = output if name == "output.weight" else layer
        stored = np.ascontiguousarray(stored, np.float32)
        add(writer, name, stored, Form.F32 if stored.ndim == 1 else form)
    writer.add_tensor("d2t", net.drafted)
    finish(writer)
