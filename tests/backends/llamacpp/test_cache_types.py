"""Types of the KV cache: memory, what they change, and what they may not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from app.learned.store import loaded_key
from app.loading.checked_loader import proof_key
from backends import llamacpp
from backends.base import CacheType, Model, UsageError
from backends.engines.backend_selection import LLAMACPP
from backends.llamacpp.context import LlamaContext
from backends.proof.proof_process import CrashCheck, ProofProcess
from models.metadata.memory_bill import facts_of
from tests.fixtures.tiny.kinds import Tiny

QUANTIZED = (CacheType.Q8_0, CacheType.Q4_0)
PROMPT = [1, 75, 300, 299, 310, 75, 300, 299, 310, 75]


def loaded(path: Path, cache_type: CacheType | None) -> Model:
    return llamacpp.load(path, threads=1, cache_type=cache_type)


def logits_of(path: Path, cache_type: CacheType | None) -> np.ndarray:
    model = loaded(path, cache_type)
    rows = model.open(256).forward(PROMPT, 4).copy()
    model.close()
    return rows


def test_half_floats_are_the_engines_own(tiny: Tiny) -> None:
    path = tiny("llama")
    assert np.array_equal(logits_of(path, None), logits_of(path, CacheType.F16))


@pytest.mark.parametrize("cache_type", QUANTIZED)
def test_a_quantized_cache_changes_logits_a_little(tiny: Tiny, cache_type: CacheType) -> None:
    usual, found = (logits_of(tiny("llama"), one) for one in (None, cache_type))
    difference = np.abs(found - usual).mean()
    assert 0.0 < difference < 0.2 * usual.std()


@pytest.mark.parametrize("cache_type", CacheType)
def test_a_cache_takes_the_bytes_of_its_type(tiny: Tiny, cache_type: CacheType) -> None:
    model = loaded(tiny("llama"), cache_type)
    context = model.open(256)
    context.forward(PROMPT, 1)
    numbers = 6 * 2 * 32  # layers, key and value, numbers of a head
    assert context.kv_bytes_per_token == round(numbers * cache_type.number_bytes)
    kept = context.save().size
    context.forward(PROMPT, 1)
    assert context.save().size - kept == pytest.approx(
        len(PROMPT) * context.kv_bytes_per_token, rel=0.2
    )
    model.close()


def test_heads_that_do_not_divide_into_blocks_are_refused(
    tiny_llama: Callable[..., Path],
) -> None:
    model = loaded(tiny_llama(), CacheType.Q8_0)
    with pytest.raises(UsageError) as refusal:
        model.open(256)
    model.close()
    assert "cannot run with --kv q8_0" in str(refusal.value)
    assert "does not divide" in refusal.value.why
    assert refusal.value.remedy == "Use --kv f16."


def test_a_child_process_runs_the_type_that_the_app_will(tiny_llama: Callable[..., Path]) -> None:
    path = tiny_llama()
    process = ProofProcess()
    with pytest.raises(UsageError, match="--kv q8_0"):
        process.prove(CrashCheck(path, LLAMACPP, 1, cache_type=CacheType.Q8_0), path.stat().st_size)
    process.close()


def test_what_was_measured_or_proven_with_one_type_is_not_used_for_another(tiny: Tiny) -> None:
    path, keys = tiny("llama"), set[str]()
    for cache_type in (None, *CacheType):
        model = loaded(path, cache_type)
        keys.add(loaded_key(model.info))
        model.close()
    assert len(keys) == len(CacheType)  # none asked for is half floats
    proven = [CrashCheck(path, LLAMACPP, 1, cache_type=one) for one in CacheType]
    assert len(set(map(proof_key, proven))) == len(CacheType)


@pytest.mark.parametrize(("kind", "sequences"), [("llama", 63), ("lfm2", 1), ("qwen35", 1)])
def test_sequences_are_opened_only_where_trees_may_be_drafted(
    tiny: Tiny, kind: str, sequences: int
) -> None:
    model = loaded(tiny(kind), None)
    context = model.open(256)
    assert isinstance(context, LlamaContext)
    assert context.pointer is not None
    assert api.llama_n_seq_max(context.pointer) == sequences
    assert context.can_verify_tree == (sequences > 1)
    model.close()


@pytest.mark.parametrize("cache_type", CacheType)
def test_the_bill_has_the_bytes_of_the_type(tiny: Tiny, cache_type: CacheType) -> None:
    model = loaded(tiny("llama"), cache_type)
    found = facts_of(tiny("llama")).with_cache(model.info.cache_type).attention.cache_bytes(256)
    assert found == 256 * model.open(256).kv_bytes_per_token
    model.close()
