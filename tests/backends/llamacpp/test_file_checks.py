"""Files that llama.cpp would end the process over are refused by name; good ones are not."""

import json
import math
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import ModelError
from backends.files.gguf_header import read_header, require_distinct_tokens
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.head_checks import checked_head, predicts
from backends.llamacpp.heads.head import load_head
from backends.llamacpp.loading import checked_header
from scripts.fuzzing.gguf import GgufParts, as_texts, small_models, texts
from tests.fixtures.damaged_gguf import good_parts, repeat_token, set_number, written
from tests.fixtures.damaged_heads import (
    Damage,
    fewer_tokens,
    number,
    numbers,
    other_tokens,
    renamed,
    stored,
    tokens_out_of_range,
    without,
    without_key,
)
from tests.fixtures.tiny.kinds import HEADS, MODELS, PREDICTING, Tiny

RMS = "attention.layer_norm_rms_epsilon"
EXPERTS, USED = "expert_count", "expert_used_count"
GROUPS, GROUPS_USED = "expert_group_count", "expert_group_used_count"
REFUSED: list[tuple[dict[str, float], str]] = [
    ({"block_count": 0}, "0 layers"),
    ({"block_count": 513}, "513 layers"),
    ({"block_count": (1 << 32) - 1}, "4,294,967,295 layers"),
    ({"nextn_predict_layers": 3}, "3 of its 2 layers"),
    ({USED: 0}, "uses 0 of 4 experts"),
    ({USED: 5}, "uses 5 of 4 experts"),
    ({EXPERTS: 1025}, "1,025 experts"),
    ({EXPERTS: 0}, "uses 2 of 0 experts"),
    ({GROUPS: 4, GROUPS_USED: 1}, "4 groups of 4 experts"),
    ({GROUPS: 3, GROUPS_USED: 1}, "of 3 groups"),
    ({GROUPS: 2, GROUPS_USED: 2}, "uses 2 of 2 groups"),
    ({RMS: -1e-6}, "epsilon is -"),
    ({RMS: math.nan}, "epsilon is nan"),
    ({"attention.head_count_kv": 3}, "wrong shape"),
    ({"rope.dimension_count": 7}, "an odd count"),
]


@pytest.mark.parametrize(("values", "told"), REFUSED)
def test_a_number_out_of_range_is_refused(
    tmp_path: Path, values: dict[str, float], told: str
) -> None:
    parts = good_parts(tmp_path / "good", "experts")
    for key, value in values.items():
        set_number(parts, key, value)
    with pytest.raises(ModelError, match=told):
        llamacpp.load(written(tmp_path, parts), threads=1)


OF_2026: list[tuple[str, Damage, str]] = [
    ("qwen35", number("attention.value_length", 16), "wrong shape"),
    ("qwen35", number("ssm.group_count", 0), "wrong shape"),
    ("qwen35", number("ssm.time_step_rank", 3), "wrong shape"),
    ("qwen35", number("ssm.conv_kernel", 1), "wrong shape"),
    ("nemotron_h_moe", number("ssm.group_count", 0), "wrong shape"),
    ("nemotron_h_moe", number("ssm.inner_size", 66), "wrong shape"),
    ("lfm2", number("shortconv.l_cache", 1), "wrong shape"),
    ("gemma4", number("attention.shared_kv_layers", 3), "1 of its layers"),
    ("qwen3", number("rope.dimension_count", 16), "rotates 16 numbers of heads that have 32"),
    ("llama", number("rope.dimension_count", 64), "rotates 64 numbers of heads that have 32"),
]


@pytest.mark.parametrize(("kind", "damage", "told"), OF_2026)
def test_a_model_of_impossible_sizes_is_refused(
    tiny: Tiny, tmp_path: Path, kind: str, damage: Damage, told: str
) -> None:
    parts = GgufParts.of(tiny(kind).read_bytes())
    damage(parts)
    path = tmp_path / f"{kind}.gguf"
    path.write_bytes(parts.whole())
    with pytest.raises(ModelError, match=told):
        llamacpp.load(path, threads=1)


def unknown_scaling(parts: GgufParts) -> None:
    entry = parts.entry(b"general.architecture")
    assert entry is not None
    parts.entries.append(type(entry)(b"qwen3moe.rope.scaling.type", entry.kind, entry.payload))


def no_extent(parts: GgufParts) -> None:
    parts.tensors[-1].shape[0] = 0


def whole_numbers(parts: GgufParts) -> None:
    next(one for one in parts.tensors if one.name.endswith(b"attn_q.weight")).ggml_type = 26


@pytest.mark.parametrize(
    ("damage", "told"),
    [(unknown_scaling, "scaled by"), (no_extent, "is empty"), (whole_numbers, "multiplication")],
)
def test_what_it_cannot_compute_with_is_refused(
    tmp_path: Path, damage: Callable[[GgufParts], None], told: str
) -> None:
    parts = good_parts(tmp_path / "good", "experts")
    damage(parts)
    with pytest.raises(ModelError, match=told):
        checked_header(written(tmp_path, parts))


def test_a_token_that_comes_twice_is_refused(tmp_path: Path) -> None:
    parts = good_parts(tmp_path / "good")
    repeat_token(parts)
    with pytest.raises(ModelError, match="the token '▁the' twice"):
        require_distinct_tokens(written(tmp_path, parts))


def test_tokens_that_differ_after_a_zero_alone_are_one_to_the_engine(tmp_path: Path) -> None:
    parts = good_parts(tmp_path / "good")
    tokens = parts.entry(b".tokens")
    assert tokens is not None
    found = texts(tokens.payload)
    tokens.payload = as_texts([*found[:-2], b"a\0b", b"a\0c"])
    with pytest.raises(ModelError, match="'a' twice"):
        require_distinct_tokens(written(tmp_path, parts))


def test_empty_tokens_are_named_by_the_engine(tmp_path: Path) -> None:
    parts = good_parts(tmp_path / "good")
    tokens = parts.entry(b".tokens")
    assert tokens is not None
    tokens.payload = as_texts([*texts(tokens.payload)[:-2], b"", b"\0"])
    require_distinct_tokens(written(tmp_path, parts))


def test_good_files_are_not_refused(tmp_path: Path) -> None:
    for path in small_models(tmp_path):
        assert checked_header(path).tensors
        require_distinct_tokens(path)


HIDDEN, OUT = "target_hidden_size", "embedding_length_out"
TAPS, NEXTN = "target_layers", "nextn_predict_layers"
HEADS_KV, SWA = "attention.head_count_kv", "attention.sliding_window_pattern"

DAMAGED_HEADS: list[tuple[str, Damage, str]] = [
    ("eagle3", number(HIDDEN, 128), "for models of width 128, and this one's is 64"),
    ("eagle3", numbers(TAPS, 2, 3), "requires exactly 3 entries"),
    ("eagle3", numbers(TAPS, 2, 3, 6), "reads layer 6 of a model whose last one to be read is 5"),
    ("eagle3", numbers(TAPS, -1, 3, 4), "reads layer -1"),
    ("eagle3", without_key(f".{TAPS}"), "requires 'extract_layers'"),
    ("eagle3", number("block_count", 2), "'blk.1.attn_norm.weight' not found"),
    ("eagle3", number("attention.value_length", 16), "wrong shape"),
    ("eagle3", without("token_embd.weight"), "of another width"),
    ("eagle3", without("output.weight"), "of another width"),
    ("eagle3", tokens_out_of_range, "tokens that are not among"),
    ("eagle3", fewer_tokens, "has 353 tokens, and the model 354"),
    ("eagle3", other_tokens, "its token 352 is '~', and the model's is '}'"),
    ("eagle3-borrowing", without("output.weight"), "no output for just these"),
    ("eagle3", number("rope.dimension_count", 0), "rotates 0 numbers"),
    ("dflash", number("embedding_length", 96), "for models of width 96"),
    ("dflash", numbers(TAPS, 2, 6), "reads layer 6"),
    ("dflash", without_key(f".{TAPS}"), "requires 'target_layers'"),
    ("dflash", number("block_size", 1), "how many tokens it drafts at once"),
    ("dflash", without_key(".mask_token_id"), "which token stands for"),
    ("dflash2", number("selector_top_k", 0), "missing conv/selector metadata"),
    ("dflash2", number("selector_top_k", 8), "too small for the selector lattice"),
    ("dflash2", stored("selector_successor.weight", 26), "has a type without multiplication"),
    ("dflash2", stored("blk.0.attn_conv_base", 1), "attn_conv_base is not of 32-bit floats"),
    ("dspark", without_key(".block_size"), "how many tokens it drafts at once"),
    ("dspark", fewer_tokens, "353 tokens"),
    ("dspark", stored("conf_proj.bias", 1), "conf_proj.bias is not of 32-bit floats"),
    ("qwen35-sidecar", number(OUT, 512), "hidden states of width 512"),
    ("gemma4-assistant", number("rope.dimension_count_swa", 64), "heads that have 32"),
    ("qwen35-sidecar", number("rope.dimension_count", 0), "in sections of [4, 2, 2, 0]"),
    ("eagle3", stored("fc.weight", 9), "fc.weight has a type without multiplication"),
    ("gemma4-assistant", number(OUT, 32), "for models of width 32"),
    ("gemma4-assistant", number(NEXTN, 1), "wrong number of tensors"),
    ("gemma4-assistant", number("attention.key_length_swa", 16), "n_embd_head_k == n_embd_head_v"),
    ("gemma4-assistant", number("attention.head_count", 0), "wrong shape"),
    ("gemma4-assistant", without_key(HEADS_KV), "reads 2 heads of a cache that has 1"),
    ("gemma4-assistant", numbers(SWA, 1), "which of its layers see a window"),
    ("qwen35-sidecar", number("embedding_length", 96), "for models of width 96"),
    ("qwen35-sidecar", without("nextn.eh_proj.weight"), "prediction layer 4 is missing"),
    ("qwen35-sidecar", number(NEXTN, 2), "2 prediction layers, and 1 of a qwen35 can be run"),
    ("qwen35-sidecar", number("block_count", 7), "prediction layer 6 is missing"),
    ("qwen35-sidecar", without_key(f".{NEXTN}"), "no prediction layers"),
    ("qwen35-sidecar", renamed("glm5-next"), "cannot draft with layers of a glm5-next"),
]  # fmt: skip
OTHER_MODELS: list[tuple[str, str, Damage, str]] = [
    ("eagle3", "llama", renamed("smollm3"), "does not hand out the layers of smollm3"),
    ("eagle3", "lfm2", fewer_tokens, "and the model 353"),
    ("eagle3", "gemma4", number("vocab_size", 1), "reads layer 4"),
    ("dflash", "qwen3", number("embedding_length", 128), "and this one's is 128"),
    ("dflash", "qwen35", number("vocab_size", 1), "reads layer 4"),
    ("gemma4-assistant", "llama", number("vocab_size", 1), "this model is a llama"),
    ("gemma4-assistant", "gemma4", numbers(SWA, 0, 0, 0, 0), "last two layers"),
    ("gemma4-assistant", "gemma4", number(HEADS_KV, 3), "of a cache that has 3"),
    ("qwen35-sidecar", "lfm2", number("vocab_size", 1), "for a qwen35"),
]


def changed(path: Path, damage: Damage, folder: Path) -> Path:
    parts = GgufParts.of(path.read_bytes())
    damage(parts)
    damaged = folder / path.name
    damaged.write_bytes(parts.whole())
    return damaged


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_of_its_model_is_not_refused(tiny: Tiny, kind: str) -> None:
    assert checked_head(tiny(kind), tiny(HEADS[kind][1])).tensors


@pytest.mark.parametrize("kind", PREDICTING)
def test_prediction_layers_in_the_models_own_file_are_not_refused(tiny: Tiny, kind: str) -> None:
    assert checked_head(tiny(kind), tiny(kind)).tensors


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("glm4moe", "blk.3.ffn_gate_inp"),
        ("nemotron_h_moe", "blk.4.nextn.shared_head_norm"),
        ("mimo2", "blk.5.attn_qkv"),
    ],
)
def test_prediction_layers_without_what_their_graph_asserts_are_refused(
    tiny: Tiny, tmp_path: Path, kind: str, name: str
) -> None:
    path = changed(tiny(kind), without(f"{name}.weight"), tmp_path)
    _, layer, part = name.split(".", 2)
    with pytest.raises(ModelError, match=f"prediction layer {layer} lacks {part}"):
        checked_head(path, path)
    assert not predicts(read_header(path))


@pytest.mark.parametrize(("kind", "damage", "told"), DAMAGED_HEADS)
def test_a_head_that_does_not_fit_is_refused(
    tiny: Tiny, tmp_path: Path, kind: str, damage: Damage, told: str
) -> None:
    head = changed(tiny(kind), damage, tmp_path)
    with closing(llamacpp.load(tiny(HEADS[kind][1]), threads=1)) as model:
        context = model.open(64)
        assert isinstance(context, LlamaContext)
        with pytest.raises(ModelError) as refusal:
            load_head(head, model, context)
    assert told in str(refusal.value)
    assert head.name in str(refusal.value)


@pytest.mark.parametrize(("kind", "model", "damage", "told"), OTHER_MODELS)
def test_a_head_of_another_model_is_refused(
    tiny: Tiny, tmp_path: Path, kind: str, model: str, damage: Damage, told: str
) -> None:
    with pytest.raises(ModelError) as refusal:
        checked_head(tiny(kind), changed(tiny(model), damage, tmp_path))
    assert told in str(refusal.value)


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_cannot_be_run_as_a_model(tiny: Tiny, kind: str) -> None:
    with pytest.raises(ModelError, match=r"for another model and|without the model"):
        checked_header(tiny(kind))


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_every_kind_can_be_run(tiny: Tiny, kind: str) -> None:
    assert checked_header(tiny(kind)).tensors


@pytest.mark.parametrize("kind", ["llama", "lfm2"])
def test_a_model_without_prediction_layers_cannot_draft_for_itself(tiny: Tiny, kind: str) -> None:
    with pytest.raises(ModelError, match="cannot draft with layers of"):
        checked_head(tiny(kind), tiny(kind))


NAME = "LlamaForCausalLMEagle3"
PUBLISHED: list[dict[str, Any]] = [
    {},
    {"architectures": ["Eagle3Speculator"]},
    {"architectures": ["LlamaForCausalLM"]},
    {"architectures": "none"},
]


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("settings", PUBLISHED)
def test_a_head_in_safetensors_is_refused_in_words(
    tiny: Tiny, tmp_path: Path, settings: dict[str, Any], is_folder: bool
) -> None:
    file = tmp_path / "model.safetensors"
    tensors = {"fc.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
    header = json.dumps(tensors).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": [NAME]} | settings), encoding="utf-8")
    with pytest.raises(ModelError, match="reads heads in GGUF"):
        checked_head(tmp_path if is_folder else file, tiny("llama"))


def test_damaged_settings_are_named(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="is damaged"):
        checked_head(tmp_path, tiny("llama"))
