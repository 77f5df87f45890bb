"""Damages the metadata of a GGUF file: values, tokens and tensor entries."""

import struct
from collections.abc import Callable
from random import Random
from typing import TypeVar

import gguf

from backends.files.gguf_header import ARRAY, SCALARS, STRING
from scripts.fuzzing.damage import damaged as with_damaged_bytes
from scripts.fuzzing.gguf_parts import Entry, GgufParts, TensorEntry, as_text, as_texts, texts

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
