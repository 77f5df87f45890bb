"""What heads draft is what the engine alone does."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import BlockContext, CacheType, Logits
from backends.engines.backend_selection import LLAMACPP
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.files import attention as rollback_depth
from decoding.checks.distribution_check import divergences
from decoding.generation import Limits
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.replied import prompts, replied, said
from tests.fixtures.tiny.head_pair import N_CTX, Pair, opened
from tests.fixtures.tiny.head_rows import drafter_of, likeliest
from tests.fixtures.tiny.head_run import PROMPT, drafted
from tests.fixtures.tiny.heads import BLOCK, write_dflash
from tests.fixtures.tiny.kinds import MODELS, PREDICTING, Tiny, target_of

KINDS = (*PREDICTING, "qwen35-sidecar", "gemma4-assistant", "dflash", "dflash2", "dspark",
         "lfm2-dspark")  # fmt: skip
"""EAGLE-3 is in tests/endtoend/test_heads_exact.py."""
LAST = 305

GREEDY = SamplingSettings(temperature=0.0)
ROUNDING = 1e-3
"""Logits of passes of other lengths differ, as sums are in another order: one reply of twelve had a
token that was less likely by 0.00007."""


def drafted_by(pair: Pair, count: int) -> list[int]:
    """The likeliest tokens that a head drafts after the prompt and a last token."""
    pair.context.forward(PROMPT, 1)
    return likeliest(pair.drafts, [*PROMPT, LAST], count).argmax(axis=1).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_drafts_what_the_engine_alone_does(tiny: Tiny, kind: str) -> None:
    target, head = tiny(target_of(kind)), tiny(kind)
    expected = drafted(target, head)
    with opened(target, head) as pair:
        assert drafted_by(pair, len(expected)) == expected


def test_the_last_tokens_row_may_be_left_out(tiny: Tiny, tmp_path: Path) -> None:
    """DSpark heads say whether it drafts."""
    head = write_dflash(tmp_path / "head.gguf", is_dspark=True, from_last=False)
    expected = drafted(tiny("qwen3"), head)
    with opened(tiny("qwen3"), head) as pair:
        assert drafted_by(pair, len(expected)) == expected
        assert isinstance(pair.drafts, BlockContext)
        assert pair.drafts.longest == BLOCK - 1


def test_a_block_head_drafts_for_a_model_with_a_running_state(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries follow the state back to what was kept; its positions are those of images."""
    monkeypatch.setattr(rollback_depth, "_SHARE", 1)  # of tiny weights, which no state fits into
    head = write_dflash(tmp_path / "head.gguf", taps=(1, 3), sections=(16, 0, 0, 0))
    with opened(tiny("qwen35"), head) as pair:
        assert 0 < pair.context.max_rollback < N_CTX
        limits = Limits(64, frozenset())
        drafter = drafter_of(pair.drafts, pair.model.info.n_vocab)
        for prompt in prompts(2):
            found = replied(pair.context, prompt, GREEDY, limits, drafter)
            assert sum(step.drafted for step in found) > 64
            for turned in divergences(pair.context, prompt, said(found)):
                assert turned.margin < ROUNDING


def test_positions_of_images_do_not_change_a_text(tiny: Tiny, tmp_path: Path) -> None:
    """Sections that rotate by time alone are the usual rotation."""
    found: list[Logits] = []
    for sections in ((), (16, 0, 0, 0)):
        head = write_dflash(tmp_path / "head.gguf", sections=sections)
        with opened(tiny("qwen3"), head) as pair:
            pair.context.forward(PROMPT, 1)
            found.append(pair.drafts.forward([*PROMPT, 130], 1).copy())
    assert np.abs(found[0] - found[1]).max() < 1e-4


@pytest.mark.parametrize("cache_type", CacheType)
def test_an_assistant_reads_a_cache_of_every_type(tiny: Tiny, cache_type: CacheType) -> None:
    with opened(tiny("gemma4"), tiny("gemma4-assistant"), cache_type) as pair:
        pair.context.forward(PROMPT, 1)
        assert np.isfinite(pair.drafts.forward([*PROMPT, 75], 1)).all()


@pytest.mark.slow
def test_every_model_answers(tiny: Tiny) -> None:
    process = ProofProcess()
    for kind in MODELS:
        path = tiny(kind)
        process.prove(CrashCheck(path, LLAMACPP, threads=1), path.stat().st_size)
    process.close()


def test_a_sidecar_drafts_what_the_whole_file_does(tiny: Tiny) -> None:
    target = tiny("qwen35")
    assert drafted(target, tiny("qwen35-sidecar")) == drafted(target, target)


@pytest.mark.parametrize("kind", MODELS)
def test_greedy_tokens_are_not_all_the_same(tiny: Tiny, kind: str) -> None:
    model = llamacpp.load(tiny(kind), threads=1)
    context = model.open(128)
    token, said = 75, list[int]()
    for _ in range(16):
        token = int(context.forward([token], 1)[-1].argmax())
        said.append(token)
    model.close()
    assert len(set(said)) > 3
