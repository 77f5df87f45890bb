"""Heads of MLX alone: chains leave nothing stale, replies stay the model's own, closed ones go.

What holds for both engines is in tests/backends/contract/test_heads.py.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.base import BlockContext, Context, Logits
from decoding.checks.greedy_check import divergences
from decoding.draft import Drafter
from decoding.drafters.block_draft import BlockDraft, drafter_of_head
from decoding.drafters.draft_model import DraftModel
from decoding.generation import Limits
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.chance import chance
from tests.fixtures.mlx_prediction import Layout, SmallPrediction
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.assisted_pair import Assisted
from tests.fixtures.tiny.eagle3 import write_eagle3
from tests.fixtures.tiny.few_tokens import SAID
from tests.fixtures.tiny.kinds import HEADS
from tests.fixtures.tiny.twin_pair import N_CTX, Twin, TwinPair, opened
from tests.fixtures.tiny.twins import twin

BLOCKS = ("dflash", "dflash2", "dspark")
CHAINS = ("eagle3", "eagle3-borrowing", "prediction")
CLUSTERED = "assistant-clustered"
PROMPT = [1, 75, 290, 299, 210, 75, 98, 112]
LAST, LENGTH = 205, 48
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.0, top_k=2)
ROUNDING = 1e-3
"""Of logits of 6, in passes of other lengths."""

ALARM = 1e-4
"""A right program fails below it once in 10,000 times."""

ROUNDS, LEFT = 50, 1000
"""LEFT: bytes that the engine's own numbers may take, far less than any weights."""

Open = Callable[..., AbstractContextManager[TwinPair]]


@pytest.fixture
def open_head(
    assisted: Assisted, small_prediction: SmallPrediction, twin_of: Twin, tmp_path: Path
) -> Open:
    """Opens a head beside its model: open_head(kind, few=False); few: both say few tokens."""

    def folders(kind: str, *, few: bool) -> tuple[Path, Path]:
        if kind.startswith("assistant"):
            found = assisted(talkative=few, clusters=6 if kind == CLUSTERED else 0)
            return found.model, found.assistant
        if kind == "prediction":
            return small_prediction(layout=Layout(says_few=few))
        model, head = twin_of(f"few-{HEADS[kind][1]}" if few else HEADS[kind][1]), twin_of(kind)
        if few and kind == "eagle3":  # it knows the tokens that the model says
            head = twin(write_eagle3(tmp_path / "head.gguf", drafted=SAID), tmp_path / "head")
        return model, head

    return lambda kind, *, few=False: opened(*folders(kind, few=few))


def drafter_of(pair: TwinPair) -> Drafter:
    drafter = drafter_of_head("head", pair.drafts, n_vocab=pair.model.info.n_vocab)
    if isinstance(drafter, BlockDraft):
        return drafter
    return DraftModel("head", pair.drafts, n_vocab=pair.model.info.n_vocab, max_draft=4)


def drafted_after(drafts: Context, text: list[int]) -> Logits:
    """Rows that a head drafts along the likeliest tokens, after a text of which it holds a part."""
    drafts.truncate(drafts.rollback_to(min(drafts.length, len(text) - 1)))
    rest = text[drafts.length :]
    for start in range(0, len(rest) - 1, 40):
        drafts.forward(rest[start : min(start + 40, len(rest) - 1)], 0)
    if isinstance(drafts, BlockContext):
        return drafts.forward(rest[-1:], 1).copy()
    rows = [drafts.forward(rest[-1:], 1)[-1].copy()]
    while len(rows) < 3:
        rows.append(drafts.forward([int(rows[-1].argmax())], 1)[-1].copy())
    return np.array(rows)


def difference(ours: Logits, theirs: Logits) -> float:
    known = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), known)
    return float(np.abs(ours[known] - theirs[known]).max())


@pytest.mark.parametrize("kind", [*CHAINS, "assistant"])
@pytest.mark.parametrize("seed", range(2))
def test_drafts_accepted_and_rejected_leave_what_a_new_context_reads(
    open_head: Open, kind: str, seed: int
) -> None:
    """Drafts, steps without one, and rewinds, after a text of any length."""
    random = np.random.default_rng(seed)
    with open_head(kind) as pair:
        context, compared = pair.context, 0
        history = random.integers(3, 300, int(random.integers(2, 90))).tolist()
        for start in range(0, len(history) - 1, 40):
            context.forward(history[start : min(start + 40, len(history) - 1)], 0)
        for step in range(8):
            if random.integers(3):  # a step that this head did not draft for
                found = drafted_after(pair.drafts, history)
                with closing(pair.model.open(N_CTX)) as fresh:
                    beside = pair.head.open_beside(fresh)
                    fresh.forward(history[:-1], 0)
                    assert difference(found, drafted_after(beside, history)) < ROUNDING
                    beside.close()
                compared += 1
            if step == 5 and len(history) > 4:  # an answer is asked for anew
                del history[-2:]
                length = context.rollback_to(len(history) - 2)
                context.truncate(length)
                context.forward(history[length:-1], 0)
                continue
            tokens = random.integers(3, 300, int(random.integers(0, 6))).tolist()
            kept, held = int(random.integers(len(tokens) + 1)), context.length
            context.forward([history[-1], *tokens], len(tokens) + 1)
            context.truncate(held + 1 + kept)
            history += [*tokens[:kept], int(random.integers(3, 300))]
        assert compared > 2


def prompts(count: int) -> Iterator[list[int]]:
    """Random prompts of a few words that repeat."""
    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.choice(random.integers(3, 300, 12), 40).tolist()


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *((kind, 1) for kind in CHAINS),
        *(pytest.param(kind, 4, marks=pytest.mark.slow) for kind in (*CHAINS, CLUSTERED)),
    ],
)
def test_greedy_replies_are_plain_ones(open_head: Open, kind: str, count: int) -> None:
    proposed = accepted = 0
    with open_head(kind, few=True) as pair:
        drafter = drafter_of(pair)
        for prompt in prompts(count):
            found = replied(pair.context, prompt, GREEDY, Limits(LENGTH, frozenset()), drafter)
            proposed += sum(step.drafted for step in found)
            accepted += sum(step.accepted for step in found)
            for turned in divergences(pair.context, prompt, said(found)):
                assert turned.margin < ROUNDING
    assert proposed > count * LENGTH
    assert accepted > 0 or kind == "eagle3-borrowing", "nothing is proven of a head never right"


@pytest.mark.parametrize(
    ("kind", "on_device", "count"),
    [
        ("assistant", True, 40),
        ("eagle3", True, 40),
        ("prediction", True, 15),
        *(
            pytest.param(kind, on_device, count, marks=pytest.mark.slow)
            for kind, on_device, count in (
                ("assistant", False, 100),
                (CLUSTERED, True, 100),
                ("eagle3", True, 120),
                ("prediction", True, 150),
            )
        ),
    ],
)
def test_sampled_replies_follow_the_models_own_law(
    open_head: Open, kind: str, on_device: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_head(kind, few=True) as pair:
        if not on_device:
            monkeypatch.setattr(pair.drafts, "device_sampling", None)
        found = chance(
            pair.context, list(PROMPT), SAMPLED, drafter_of(pair), count, more=3, accepted=0.05
        )
    assert found >= ALARM


@pytest.mark.parametrize("kind", ["prediction", "assistant", "eagle3", "dflash"])
@pytest.mark.parametrize("first", ["head", "context", "model"])
def test_any_order_closes_all(open_head: Open, kind: str, first: str) -> None:
    with open_head(kind) as pair:
        further = pair.head.open_beside(pair.context)
        pair.context.forward(PROMPT, 1)
        drafted_after(pair.drafts, [*PROMPT, 5])
        getattr(pair, first).close()
        with pytest.raises(AssertionError):
            pair.drafts.forward([5], 0 if isinstance(pair.drafts, BlockContext) else 1)
        for one in (pair.head, pair.context, pair.model, pair.drafts, further):
            one.close()


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        ("prediction", 8),
        *(
            pytest.param(kind, ROUNDS, marks=pytest.mark.slow)
            for kind in (*CHAINS, "assistant", *BLOCKS)
        ),
    ],
)
def test_closed_heads_leave_nothing(open_head: Open, kind: str, rounds: int) -> None:
    """Nor does anything wait for a collection of cycles: weights may fill most of the memory."""
    sizes: list[int] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            with open_head(kind) as pair:
                drafter = drafter_of(pair)
                drafter.begin(PROMPT, Sampler(GREEDY))
                pair.context.forward(PROMPT, 1)
                draft = drafter.propose([*PROMPT, LAST], 3)
                assert len(draft) > 0
                pair.context.forward([LAST, *draft.tokens], 1 + len(draft))
                pair.context.truncate(len(PROMPT) + 1)
                drafter.propose([*PROMPT, LAST, 7], 3)
            del pair, drafter, draft
            sizes.append(mx.get_active_memory())
    finally:
        gc.enable()
    assert np.ptp(sizes[1:]) < LEFT
