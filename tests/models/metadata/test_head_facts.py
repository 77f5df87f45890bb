"""What a head takes of memory, by headers."""

from pathlib import Path

import pytest

from backends.base import ModelError
from models.metadata.head_facts import head_facts
from models.metadata.memory_bill import CHUNK, bill, facts_of
from tests.fixtures.drafter_files import EAGLE3, EAGLE3_KEYS, OWN, TARGET_KEYS, WIDTH, written
from tests.fixtures.tiny.kinds import Tiny

FLOAT, HALF = 4, 2


def test_a_models_own_layers_have_no_weights_of_their_own(tiny: Tiny) -> None:
    path = tiny("qwen35")
    facts, whole = head_facts(path, path), facts_of(path)
    assert facts.weight_bytes == 0
    assert facts.row_bytes == FLOAT * whole.width
    cache = facts.attention.cache_bytes(100)
    full = sum(kind.numbers_per_token > 0 for kind in whole.attention.layers)
    assert cache == whole.attention.cache_bytes(100) // full, "one layer, as large as the others"
    assert bill(facts, 100).cache == cache + 100 * facts.row_bytes


def test_a_sidecar_has_the_weights_of_its_file(tiny: Tiny) -> None:
    own = head_facts(tiny("qwen35"), tiny("qwen35"))
    beside = head_facts(tiny("qwen35-sidecar"), tiny("qwen35"))
    assert beside.weight_bytes == facts_of(tiny("qwen35-sidecar")).weight_bytes > 0
    assert (beside.attention, beside.row_bytes) == (own.attention, own.row_bytes)


def test_a_head_of_three_layers_keeps_three_rows_of_a_token(tmp_path: Path) -> None:
    head = written(tmp_path / "e.gguf", "eagle3", EAGLE3_KEYS, EAGLE3)
    model = written(tmp_path / "m.gguf", "llama", TARGET_KEYS, OWN[:4])
    facts = head_facts(head, model)
    assert facts.row_bytes == FLOAT * 3 * WIDTH
    assert facts.context_limit == 0, "its context is the model's"


def test_an_assistant_has_no_cache_and_keeps_the_rows_of_a_pass(tiny: Tiny) -> None:
    facts = head_facts(tiny("gemma4-assistant"), tiny("gemma4"))
    assert facts.attention.cache_bytes(1000) == 0
    assert facts.row_bytes == FLOAT * facts_of(tiny("gemma4")).width
    assert facts.kept_bytes(1000) == facts.kept_bytes(100_000) == CHUNK * facts.row_bytes
    assert facts.kept_bytes(10) == 10 * facts.row_bytes


def test_a_model_without_a_head_has_no_facts_of_one(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="brings nothing that drafts"):
        head_facts(tiny("llama"), tiny("llama"))
