"""Valid GGUF files of a few kilobytes in six architectures, to be damaged."""

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

import gguf
import numpy as np

from backends.files.gguf_header import ARRAY, SCALARS, STRING
from scripts.fuzzing.damage import damaged as with_damaged_bytes

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


_ALIGNMENT = 32


@dataclass(slots=True)
class Entry:
    """Key and value; payload: the bytes after the type number."""

    key: bytes
    kind: int
    payload: bytes


@dataclass(slots=True)
class TensorEntry:
    """Entry of a tensor in the header."""

    name: bytes
    shape: list[int]
    ggml_type: int
    offset: int


@dataclass(slots=True)
class GgufParts:
    """Parts of a file; whole() serializes them without checks."""

    entries: list[Entry] = field(default_factory=list[Entry])
    tensors: list[TensorEntry] = field(default_factory=list[TensorEntry])
    data: bytes = b""

    @classmethod
    def of(cls, good: bytes) -> "GgufParts":
        """Parse a valid file."""
        n_tensors, n_entries = struct.unpack_from("<QQ", good, 8)
        parts, at = cls(), 24
        for _ in range(n_entries):
            key, at = _text(good, at)
            (kind,) = struct.unpack_from("<I", good, at)
            end = _end(good, at + 4, kind)
            parts.entries.append(Entry(key, kind, good[at + 4 : end]))
            at = end
        for _ in range(n_tensors):
            name, at = _text(good, at)
            (rank,) = struct.unpack_from("<I", good, at)
            shape = list(struct.unpack_from(f"<{rank}Q", good, at + 4))
            ggml_type, offset = struct.unpack_from("<IQ", good, at + 4 + 8 * rank)
            parts.tensors.append(TensorEntry(name, shape, ggml_type, offset))
            at += 16 + 8 * rank
        parts.data = good[-(-at // _ALIGNMENT) * _ALIGNMENT :]
        return parts

    def entry(self, key: bytes) -> Entry | None:
        """Entry whose key has this suffix, None if there is none."""
        return next((one for one in self.entries if one.key.endswith(key)), None)

    def keep(self, is_kept: Callable[[TensorEntry], bool]) -> None:
        """Remove tensors with their bytes; the engine accepts no gaps."""
        ends = sorted({*(one.offset for one in self.tensors), len(self.data)})
        after = dict(itertools.pairwise(ends))
        data = b""
        kept = [one for one in self.tensors if is_kept(one)]
        for one in kept:
            bytes_ = self.data[one.offset : after.get(one.offset, one.offset)]
            one.offset = len(data)
            data += bytes_ + bytes(-len(bytes_) % _ALIGNMENT)
        self.tensors, self.data = kept, data

    def whole(self) -> bytes:
        """Serialize the file."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.entries))
        for one in self.entries:
            head += as_text(one.key) + struct.pack("<I", one.kind) + one.payload
        for tensor in self.tensors:
            shape = [extent & (1 << 64) - 1 for extent in tensor.shape]
            head += as_text(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            head += struct.pack("<IQ", tensor.ggml_type, tensor.offset)
        return head + bytes(-len(head) % _ALIGNMENT) + self.data


def as_text(text: bytes) -> bytes:
    """Serialize a text."""
    return struct.pack("<Q", len(text)) + text


def texts(payload: bytes) -> list[bytes]:
    """Parse a list of texts, whose length may be damaged."""
    found, at = list[bytes](), 12
    while at + 8 <= len(payload):
        text, at = _text(payload, at)
        found.append(text)
    return found


def as_texts(found: list[bytes]) -> bytes:
    """Serialize a list of texts, without its type number."""
    return struct.pack("<IQ", STRING, len(found)) + b"".join(map(as_text, found))


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size], at + 8 + size


def _end(data: bytes, at: int, kind: int) -> int:
    if kind == STRING:
        return _text(data, at)[1]
    if kind != ARRAY:
        return at + struct.calcsize(SCALARS[kind])
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _end(data, at, inner)
    return at


_UINT32, _INT32, _FLOAT32, _BOOL = 4, 5, 6, 7
_NUMBERS = (
    0, 1, 2, 3, 5, 7, 33, 255, 511, 512, 513, 1024, 1025, 65_535, 65_536, (1 << 24) + 1,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1,
)  # fmt: skip
_DECIMALS = (0.0, -0.0, -1e-6, -1.0, 1e-45, 1e38, -1e38, float("nan"), float("inf"), -float("inf"))
_TEXTS = (
    b"", b"\0", b"llama", b"none", b"bert", b"t5", b"rwkv", b"gpt2", b"no_vocab", b"plamo2",
    b"yarn", b"longrope", b"default", b"gemma4", b"kimi-k2", b"\xff\xfe", b"%s%n", b"A" * 5000,
    b"{% for a in range(10**9) %}{{ a }}{% endfor %}", b"{{ ''.__class__ }}", b"{% if",
)  # fmt: skip
_ODD_TOKENS = (
    b"", b"\0", b"\0a", b"a\0b", b"\xff", b"\xe2\x96", b"\xe2\x96\x81", b" ", b"\n", b"<0x",
    b"<0xZZ>", b"<s>", b"</s>", b"<unk>", b"<|endoftext|>", b"<|im_end|>",
    b"\xf0\x9f\x99\x82", b"B" * 70_000,
)  # fmt: skip
_MORE_KEYS = (
    "attention.key_length", "attention.value_length", "attention.key_length_swa",
    "attention.value_length_swa", "attention.sliding_window", "attention.sliding_window_pattern",
    "attention.layer_norm_epsilon", "attention.causal", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.kv_lora_rank", "attention.q_lora_rank",
    "attention.group_norm_groups", "attention.group_norm_epsilon", "attention.scale",
    "attention.temperature_length", "attention.temperature_scale", "attention.shared_kv_layers",
    "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "residual_scale",
    "embedding_scale", "embedding_length_out", "expert_count", "expert_used_count",
    "expert_group_count", "expert_group_used_count", "expert_shared_count",
    "expert_feed_forward_length", "expert_gating_func", "leading_dense_block_count",
    "full_attention_interval", "nextn_predict_layers", "pooling_type", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.dimension_sections",
    "rope.dimension_count_swa", "rope.freq_base_swa", "ssm.group_count", "ssm.dt_b_c_rms",
    "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
    "use_parallel_residual", "vocab_size", "decoder_start_token_id", "moe_every_n_layers",
    "token_shift_count", "target_layers", "target_hidden_size", "block_size", "shortconv.l_cache",
    "norm_before_residual", "norm_before_fc", "attention.recurrent_layers", "conv_kernel_size",
    "attention.layer_norm_rms_epsilon", "hyper_connection.count",
)  # fmt: skip
_OTHER_KEYS = (
    "general.alignment", "general.file_type", "general.type", "split.count", "split.no",
    "split.tensors.count", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id", "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.pre",
    "tokenizer.ggml.token_type_count", "tokenizer.ggml.suppress_tokens",
    "tokenizer.ggml.precompiled_charsmap", "tokenizer.chat_template", "adapter.type",
)  # fmt: skip
_ARCHITECTURES = tuple(name.encode() for name in gguf.MODEL_ARCH_NAMES.values())

_One = TypeVar("_One")

Mutation = Callable[[GgufParts, Random], None]


def damaged(good: bytes, random: Random) -> bytes:
    """Apply one to four kinds of damage, and one time in six damage the bytes too."""
    parts = GgufParts.of(good)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(MUTATIONS)(parts, random)
    data = parts.whole()
    return with_damaged_bytes(data, random) if random.randrange(6) == 0 else data


def change_value(parts: GgufParts, random: Random) -> None:
    """Replace a value by an extreme one of the same type."""
    one = _any(parts.entries, random)
    if one is None:
        return
    if one.kind == STRING:
        one.payload = as_text(random.choice(_TEXTS))
    elif one.kind in SCALARS:
        one.payload = _scalar(one.kind, random)
    else:
        _change_list(one, random)


def change_type(parts: GgufParts, random: Random) -> None:
    """Replace a value by one of another type."""
    one = _any(parts.entries, random)
    if one is not None:
        one.kind, one.payload = _value(random)


def add_value(parts: GgufParts, random: Random) -> None:
    """Add a value for the architecture or the file."""
    name = parts.entry(b"general.architecture")
    prefix = name.payload[8:] if name else b"llama"
    key = random.choice([f"{prefix.decode(errors='replace')}.{key}" for key in _MORE_KEYS])
    key = random.choice((key, key, random.choice(_OTHER_KEYS)))
    kind, payload = _value(random)
    parts.entries = [one for one in parts.entries if one.key != key.encode()]
    parts.entries.append(Entry(key.encode(), kind, payload))


def lose_value(parts: GgufParts, random: Random) -> None:
    """Remove a value."""
    if parts.entries:
        del parts.entries[random.randrange(len(parts.entries))]


def repeat_value(parts: GgufParts, random: Random) -> None:
    """Duplicate a value."""
    one = _any(parts.entries, random)
    if one is not None:
        parts.entries.append(Entry(one.key, one.kind, one.payload))


def change_tokens(parts: GgufParts, random: Random) -> None:
    """Repeat, empty, lose and misspell tokens or merges."""
    one = parts.entry(random.choice((b".tokens", b".tokens", b".merges")))
    if one is None or one.kind != ARRAY or one.payload[:4] != struct.pack("<I", STRING):
        return
    found = texts(one.payload)
    for _ in range(random.choice((1, 1, 3, 50))):
        if not found:
            break
        at = random.randrange(len(found))
        match random.randrange(5):
            case 0:
                found[at] = random.choice(found)
            case 1:
                del found[at]
            case 2:
                found.insert(at, random.choice(_ODD_TOKENS))
            case 3:
                found[at] = found[at][: random.randrange(len(found[at]) + 1)]
            case _:
                found[at] = random.choice(_ODD_TOKENS)
    one.payload = as_texts(found)


def change_token_figures(parts: GgufParts, random: Random) -> None:
    """Replace kinds and scores of tokens by odd ones, or by too few."""
    one = parts.entry(random.choice((b".token_type", b".scores")))
    if one is not None and one.kind == ARRAY:
        _change_list(one, random)


def change_tensor(parts: GgufParts, random: Random) -> None:
    """Change the name, shape, type or offset of a tensor."""
    one = _any(parts.tensors, random)
    if one is None:
        return
    match random.randrange(7):
        case 0:
            one.shape[random.randrange(len(one.shape))] = random.choice(_NUMBERS)
        case 1:
            one.shape.append(random.choice((1, 1, 2, 0)))
        case 2:
            one.shape.reverse()
        case 3:
            one.ggml_type = random.choice((*range(42), 255, (1 << 31) - 1))
        case 4:
            one.offset = random.choice((0, 1, 31, 32, one.offset + 32, 1 << 40, (1 << 64) - 32))
        case 5:
            one.name = random.choice((b"", b"\0", b"x" * 63, b"y" * 64, b"blk.999.attn_q.weight"))
        case _:
            other = random.choice(parts.tensors)
            one.name, other.name = other.name, one.name


def change_all_types(parts: GgufParts, random: Random) -> None:
    """Store all tensors of a kind as another type, where the bytes suffice."""
    one = _any(parts.tensors, random)
    ggml_type = random.choice((0, 1, 2, 8, 24, 26, 30))
    for other in parts.tensors if one else ():
        if one and other.name.endswith(one.name[-12:]):
            other.ggml_type = ggml_type


def lose_tensor(parts: GgufParts, random: Random) -> None:
    """Remove a tensor, with its bytes or without."""
    if not parts.tensors:
        return
    lost = random.choice(parts.tensors)
    if random.randrange(2):
        parts.keep(lambda one: one is not lost)
    else:
        parts.tensors.remove(lost)


def add_tensor(parts: GgufParts, random: Random) -> None:
    """Add a tensor at the offset of another, with its name or a new one."""
    one = _any(parts.tensors, random)
    if one is None:
        return
    names = (one.name, b"output.weight", b"rope_freqs.weight", b"blk.0.attn_q.bias", b"odd",
             b"rope_factors_long.weight", b"cls.weight", b"blk.0.attn_sinks.weight")  # fmt: skip
    parts.tensors.append(
        TensorEntry(random.choice(names), list(one.shape), one.ggml_type, one.offset)
    )


def rename_architecture(parts: GgufParts, random: Random) -> None:
    """Change the architecture and the prefix of its keys."""
    name = parts.entry(b"general.architecture")
    if name is None or name.kind != STRING:
        return
    before, after = name.payload[8:], random.choice(_ARCHITECTURES)
    name.payload = as_text(after)
    for one in parts.entries:
        if before and one.key.startswith(before + b"."):
            one.key = after + one.key[len(before) :]


def change_together(parts: GgufParts, random: Random) -> None:
    """Change a count together with the shapes that depend on it."""
    before, after = random.choice(
        ((32, 33), (32, 64), (8, 7), (8, 16), (16, 24), (64, 96), (16, 0))
    )
    for one in parts.entries:
        if one.kind == _UINT32 and one.payload == struct.pack("<I", before):
            one.payload = struct.pack("<I", after)
    for tensor in parts.tensors:
        tensor.shape = [after if extent == before else extent for extent in tensor.shape]


def _change_list(one: Entry, random: Random) -> None:
    kind, count = struct.unpack_from("<IQ", one.payload)
    if random.randrange(4) == 0:
        count = random.choice((0, 1, max(count - 1, 0), count + 1, *_NUMBERS))
        one.payload = struct.pack("<IQ", kind, count) + one.payload[12:]
    elif kind in SCALARS:
        size = struct.calcsize(SCALARS[kind])
        values = [one.payload[at : at + size] for at in range(12, len(one.payload), size)]
        for _ in range(random.choice((1, 5, len(values)))):
            if values:
                values[random.randrange(len(values))] = _scalar(kind, random)
        one.payload = struct.pack("<IQ", kind, len(values)) + b"".join(values)


def _value(random: Random) -> tuple[int, bytes]:
    kind = random.choice(
        (_UINT32, _UINT32, _UINT32, _INT32, _FLOAT32, _FLOAT32, _BOOL, STRING, ARRAY)
    )
    if kind == STRING:
        return kind, as_text(random.choice(_TEXTS))
    if kind == ARRAY:
        inner, count = (
            random.choice((_UINT32, _INT32, _FLOAT32, _BOOL)),
            random.choice((0, 1, 2, 4, 512)),
        )
        values = b"".join(_scalar(inner, random) for _ in range(count))
        return kind, struct.pack("<IQ", inner, count) + values
    return kind, _scalar(kind, random)


def _scalar(kind: int, random: Random) -> bytes:
    form = SCALARS[kind]
    if form[1] in "fd":
        value = random.choice(_DECIMALS)
        return struct.pack(form, value if form[1] == "d" else max(min(value, 3e38), -3e38))
    bits = 8 * struct.calcsize(form)
    return (random.choice(_NUMBERS) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _any(found: list[_One], random: Random) -> _One | None:
    return random.choice(found) if found else None


MUTATIONS: tuple[Mutation, ...] = (
    change_value, change_value, change_value, change_type, add_value, add_value, add_value,
    lose_value, repeat_value, change_tokens, change_tokens, change_token_figures, change_tensor,
    change_tensor, change_all_types, lose_tensor, add_tensor, rename_architecture, change_together,
)  # fmt: skip
