"""Valid GGUF files of a few kilobytes in six architectures, to be damaged."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np

_WIDTH, _HEADS, _KEPT, _HEAD, _WIDE, _LAYERS = 32, 4, 2, 8, 64, 2
_EXPERTS, _USED = 4, 2
_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"

Shape = tuple[int, ...]
Shapes = Iterator[tuple[str, Shape]]


def small_models(folder: Path) -> list[Path]:
    """A file of each architecture; an attention model in two vocabularies and two layouts."""
    return [
        _written(folder / "llama.gguf", "llama", _plain),
        _written(folder / "qwen2.gguf", "qwen2", _with_biases, vocabulary=_byte_pairs),
        _written(folder / "halves.gguf", "llama", _plain, gguf.GGMLQuantizationType.Q8_0),
        _written(folder / "experts.gguf", "qwen3moe", _with_experts, vocabulary=_byte_pairs),
        _written(folder / "windows.gguf", "gemma3", _with_windows),
        _written(folder / "hybrid.gguf", "lfm2", _hybrid),
        _written(folder / "recurrent.gguf", "mamba", _recurrent),
    ]


def _written(
    path: Path,
    architecture: str,
    shapes: Callable[[int], Shapes],
    stored: gguf.GGMLQuantizationType | None = None,
    vocabulary: "Callable[[gguf.GGUFWriter], int] | None" = None,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    n_vocab = (vocabulary or _sentence_pieces)(writer)
    writer.add_name(f"small {architecture}")
    writer.add_chat_template(_TEMPLATE)
    for key, value in (_COMMON | _KEYS.get(architecture, {})).items():
        _add(writer, f"{architecture}.{key}", value)
    random = np.random.default_rng(1)
    whole = [("token_embd.weight", (n_vocab, _WIDTH)), ("output_norm.weight", (_WIDTH,))]
    if architecture == "lfm2":
        whole[1] = ("token_embd_norm.weight", (_WIDTH,))
    layers = [
        (f"blk.{layer}.{name}", shape) for layer in range(_LAYERS) for name, shape in shapes(layer)
    ]
    for name, shape in (*whole, *layers):
        values = random.normal(0.0, 0.3, shape).astype(np.float32)
        if stored is not None and len(shape) == 2:
            packed = gguf.quants.quantize(values, stored)
            writer.add_tensor(name, packed, raw_dtype=stored)
        else:
            writer.add_tensor(name, -abs(values) if name.endswith("ssm_a") else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_COMMON: dict[str, int | float | list[int]] = {
    "context_length": 256,
    "embedding_length": _WIDTH,
    "block_count": _LAYERS,
    "feed_forward_length": _WIDE,
    "attention.head_count": _HEADS,
    "attention.head_count_kv": _KEPT,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": _HEAD,
}

_KEYS: dict[str, dict[str, int | float | list[int]]] = {
    "qwen3moe": {
        "expert_count": _EXPERTS,
        "expert_used_count": _USED,
        "expert_feed_forward_length": _WIDE,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
    },
    "gemma3": {
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "attention.sliding_window": 16,
    },
    "lfm2": {"shortconv.l_cache": 3, "attention.head_count_kv": [0, _KEPT]},
    "mamba": {
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "feed_forward_length": 0,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": _WIDE,
        "ssm.state_size": 16,
        "ssm.time_step_rank": 2,
    },
}


def _add(writer: gguf.GGUFWriter, key: str, value: int | float | Sequence[int]) -> None:
    if isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _sentence_pieces(writer: gguf.GGUFWriter) -> int:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["▁", *map(chr, range(97, 123)), "▁the", "ing"]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2]
    kinds += [gguf.TokenType.BYTE] * len(bytes_) + [gguf.TokenType.NORMAL] * len(words)
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *words]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(index) for index in range(len(tokens))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def _byte_pairs(writer: gguf.GGUFWriter) -> int:
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, shown), *(chr(256 + index) for index in range(256 - len(shown)))]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("in", "g")]
    tokens = ["<|endoftext|>", *letters, *map("".join, merges)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_eos_token_id(0)
    return len(tokens)


def _attention() -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield "attn_q.weight", (_HEADS * _HEAD, _WIDTH)
    yield "attn_k.weight", (_KEPT * _HEAD, _WIDTH)
    yield "attn_v.weight", (_KEPT * _HEAD, _WIDTH)
    yield "attn_output.weight", (_WIDTH, _HEADS * _HEAD)
    yield "ffn_norm.weight", (_WIDTH,)


def _feed_forward() -> Shapes:
    yield "ffn_gate.weight", (_WIDE, _WIDTH)
    yield "ffn_up.weight", (_WIDE, _WIDTH)
    yield "ffn_down.weight", (_WIDTH, _WIDE)


def _head_norms() -> Shapes:
    yield "attn_q_norm.weight", (_HEAD,)
    yield "attn_k_norm.weight", (_HEAD,)


def _plain(_layer: int) -> Shapes:
    yield from _attention()
    yield from _feed_forward()


def _with_biases(_layer: int) -> Shapes:
    yield from _plain(_layer)
    yield "attn_q.bias", (_HEADS * _HEAD,)
    yield "attn_k.bias", (_KEPT * _HEAD,)
    yield "attn_v.bias", (_KEPT * _HEAD,)


def _with_experts(_layer: int) -> Shapes:
    yield from _attention()
    yield from _head_norms()
    yield "ffn_gate_inp.weight", (_EXPERTS, _WIDTH)
    yield "ffn_gate_exps.weight", (_EXPERTS, _WIDE, _WIDTH)
    yield "ffn_up_exps.weight", (_EXPERTS, _WIDE, _WIDTH)
    yield "ffn_down_exps.weight", (_EXPERTS, _WIDTH, _WIDE)


def _with_windows(_layer: int) -> Shapes:
    yield from _plain(_layer)
    yield from _head_norms()
    yield "post_attention_norm.weight", (_WIDTH,)
    yield "post_ffw_norm.weight", (_WIDTH,)


def _hybrid(layer: int) -> Shapes:
    if layer:
        yield from _plain(layer)
        yield from _head_norms()
        return
    yield "attn_norm.weight", (_WIDTH,)
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _feed_forward()
    yield "shortconv.conv.weight", (_WIDTH, 3)
    yield "shortconv.in_proj.weight", (3 * _WIDTH, _WIDTH)
    yield "shortconv.out_proj.weight", (_WIDTH, _WIDTH)


def _recurrent(_layer: int) -> Shapes:
    state, rank, kernel = 16, 2, 4
    yield "attn_norm.weight", (_WIDTH,)
    yield "ssm_in.weight", (2 * _WIDE, _WIDTH)
    yield "ssm_conv1d.weight", (_WIDE, kernel)
    yield "ssm_conv1d.bias", (_WIDE,)
    yield "ssm_x.weight", (rank + 2 * state, _WIDE)
    yield "ssm_dt.weight", (_WIDE, rank)
    yield "ssm_dt.bias", (_WIDE,)
    yield "ssm_a", (_WIDE, state)
    yield "ssm_d", (_WIDE,)
    yield "ssm_out.weight", (_WIDTH, _WIDE)
