"""Files that llama.cpp would end the process over are refused by name; good ones are not."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import ModelError
from backends.files.gguf_header import require_distinct_tokens
from backends.llamacpp.loading import checked_header
from scripts.fuzzing.gguf import GgufParts, as_texts, small_models, texts
from tests.fixtures.damaged_gguf import good_parts, repeat_token, set_number, written
from tests.fixtures.damaged_heads import Damage, number
from tests.fixtures.tiny.kinds import Tiny

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
