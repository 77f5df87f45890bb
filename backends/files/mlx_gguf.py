"""GGUF files that MLX can run directly, and their settings in the form of config.json.

Only the header is read, without an engine.
"""

from pathlib import Path
from typing import Any

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, Tensor, parts, read_header
from backends.files.mlx_folder import MlxFolder

PRE_TOKENIZERS = ("smollm", "gpt-2", "llama-bpe", "qwen2")
"""Supported pre-tokenizers, by their names in llama.cpp."""

GROUP = 32
"""Weights that share a scale, in every supported quantization."""

ROPE_FACTORS = "rope_freqs"
"""Tensor that scales the rotary embedding of Llama 3.1 and later."""

MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Layer names of llama.cpp, and their names in mlx-lm's llama."""

_STORED = {0: (1, 4), 1: (1, 2), 2: (GROUP, 18), 3: (GROUP, 20), 8: (GROUP, 34)}
"""Weights and bytes of a block of F32, F16, Q4_0, Q4_1 and Q8_0, by type number in ggml."""

_BITS = {2: 4, 3: 4, 8: 8}
_HELD = {2: 20, 3: 20, 8: 36}
"""Bytes of a quantized block in memory: MLX adds an offset to every scale."""
_ATTENTION = "attention."


def reason_against(path: Path) -> str:
    """Why MLX cannot run a file, "" if it can."""
    if len(parts(path)) > 1:
        return "it is split into several files"
    header = read_header(path)
    if header.architecture != "llama":
        return f"its architecture is {header.architecture or 'not named'}, not llama"
    return _against_shape(header) or _against_tensors(header) or _against_tokenizer(header)


def read_settings(path: Path) -> MlxFolder:
    """Settings and size of a file that MLX can run.

    Raises:
        ModelError: MLX cannot run it, or it is missing, damaged or cut short.
    """
    reason = reason_against(path)
    if reason:
        raise ModelError(
            f"MLX cannot run {path.name}", reason, "Use --backend llamacpp, or an MLX folder."
        )
    header = read_header(path)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    heads = header.integer(_ATTENTION + "head_count")
    width = header.integer("embedding_length")
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": header.integer("feed_forward_length"),
        "num_hidden_layers": header.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": header.integer(_ATTENTION + "head_count_kv", heads),
        "head_dim": _head_width(header),
        "rms_norm_eps": _decimal(header, _ATTENTION + "layer_norm_rms_epsilon", 1e-5),
        "rope_theta": _decimal(header, "rope.freq_base", 10000.0),
        "max_position_embeddings": header.integer("context_length"),
        "vocab_size": header.n_vocab,
        "tie_word_embeddings": "output.weight" not in tensors,
        "eos_token_id": header.metadata.get("tokenizer.ggml.eos_token_id"),
    }
    if header.metadata.get("llama.rope.scaling.type") == "linear":
        factor = _decimal(header, "rope.scaling.factor", 1.0)
        config["rope_scaling"] = {"type": "linear", "factor": factor}
    bits = [
        _BITS[kind] for kind in (tensor.ggml_type for tensor in header.tensors) if kind in _BITS
    ]
    if bits:
        config["quantization"] = {"group_size": GROUP, "bits": max(set(bits), key=bits.count)}
    has_half = any(tensor.ggml_type for tensor in header.tensors)
    number_bytes = 2 if has_half else 4
    sizes = {name: _held_bytes(tensor, number_bytes) for name, tensor in tensors.items()}
    held = sum(sizes.values())
    looked_up = sizes.get("token_embd.weight", 0) if "output.weight" in tensors else 0
    return MlxFolder(config, held, number_bytes=number_bytes, read_bytes=held - looked_up)


def _held_bytes(tensor: Tensor, number_bytes: int) -> int:
    """Bytes of a loaded tensor; number_bytes: of a number in an unquantized one."""
    block = _HELD.get(tensor.ggml_type)
    return tensor.parameters // GROUP * block if block else tensor.parameters * number_bytes


def _against_shape(header: GgufHeader) -> str:
    required = ("embedding_length", "feed_forward_length", "block_count", "context_length")
    for key in (*required, _ATTENTION + "head_count"):
        if header.integer(key) <= 0:
            return f"llama.{key} is missing, or is not the same for all layers"
    layers = sum(tensor.name.endswith(".attn_norm.weight") for tensor in header.tensors)
    if layers != header.integer("block_count"):
        return f"it has tensors of {layers} layers, not {header.integer('block_count')}"
    head = _head_width(header)
    rotated = header.integer("rope.dimension_count", head)
    if rotated != head or header.integer(_ATTENTION + "value_length", head) != head:
        return "only a part of each head is rotated, or its values have another width"
    scaling = header.metadata.get("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        return f"its rotary embedding is scaled by {scaling}"
    return ""


def _head_width(header: GgufHeader) -> int:
    heads = header.integer(_ATTENTION + "head_count")
    return header.integer(
        _ATTENTION + "key_length", header.integer("embedding_length") // max(heads, 1)
    )


def _decimal(header: GgufHeader, key: str, default: float) -> float:
    value = header.metadata.get(f"llama.{key}", default)
    return float(value) if isinstance(value, int | float) else default


def _against_tensors(header: GgufHeader) -> str:
    for tensor in header.tensors:
        module, _, part = tensor.name.rpartition(".")
        if part != "weight" or module.rpartition(".")[2] not in (*MODULES, ROPE_FACTORS):
            return f"it has a tensor {tensor.name}, which a plain llama does not have"
        if tensor.ggml_type not in _STORED:
            return f"tensor {tensor.name} is quantized in a way MLX has no layer for"
        block, size = _STORED[tensor.ggml_type]
        if tensor.shape[0] % block:
            return f"tensor {tensor.name} has rows that are no whole blocks of {block}"
        if tensor.stored_bytes < tensor.parameters // block * size:
            raise ModelError(
                f"tensor {tensor.name} is cut short",
                "the file ends inside it",
                "Download or copy it again.",
            )
    return ""


def _against_tokenizer(header: GgufHeader) -> str:
    model = header.metadata.get("tokenizer.ggml.model", "none")
    if model != "gpt2":
        return f"its tokenizer is of type {model}; supported: gpt2"
    pre = header.metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        return f"its pre-tokenizer is {pre}; supported: {', '.join(PRE_TOKENIZERS)}"
    return ""
