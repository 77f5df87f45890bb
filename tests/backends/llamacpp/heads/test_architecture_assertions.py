"""Models of 2026 that llama.cpp would end the process over are refused by name."""

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends.base import ModelError
from backends.llamacpp.loading import checked_header
from scripts.fuzzing.gguf_parts import GgufParts
from tests.fixtures.damaged_heads import Damage, number
from tests.fixtures.tiny.kinds import Tiny

REFUSED: list[tuple[str, Damage, str]] = [
    ("qwen35", number("attention.value_length", 16), "and the values 16"),
    ("qwen35", number("ssm.group_count", 0), "in 0 groups"),
    ("qwen35", number("ssm.time_step_rank", 3), "into 3 heads"),
    ("qwen35", number("ssm.conv_kernel", 1), "over 1 tokens"),
    ("nemotron_h_moe", number("ssm.group_count", 0), "does not divide into"),
    ("nemotron_h_moe", number("ssm.inner_size", 66), "of 66 numbers"),
    ("lfm2", number("shortconv.l_cache", 1), "over 1 tokens"),
    ("gemma4", number("attention.shared_kv_layers", 3), "1 of its layers"),
    ("qwen3", number("rope.dimension_count", 16), "rotates 16 numbers of heads that have 32"),
    ("llama", number("rope.dimension_count", 64), "rotates 64 numbers of heads that have 32"),
]


@pytest.mark.parametrize(("kind", "damage", "told"), REFUSED)
def test_a_model_of_impossible_sizes_is_refused(
    tiny: Tiny, tmp_path: Path, kind: str, damage: Damage, told: str
) -> None:
    parts = GgufParts.of(tiny(kind).read_bytes())
    damage(parts)
    path = tmp_path / f"{kind}.gguf"
    path.write_bytes(parts.whole())
    with pytest.raises(ModelError) as refusal:
        checked_header(path)
    assert told in str(refusal.value)
