"""Heads of both engines: entries follow what the model keeps, and replies stay the model's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Any

import numpy as np
import pytest

from backends.base import BlockContext, Context, Logits, ModelError
from decoding.checks.greedy_check import divergences
from decoding.draft import Drafter
from decoding.drafters.block_draft import BlockDraft, drafter_of_head
from decoding.drafters.draft_model import DraftModel
from decoding.generation import Limits
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.chance import chance
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.assisted_pair import opened as opened_folders
from tests.fixtures.tiny.dflash import BLOCK
from tests.fixtures.tiny.head_pair import N_CTX, Pair
from tests.fixtures.tiny.kinds import PREDICTING
from tests.fixtures.tiny.twin_pair import TwinPair, opened_kind

Beside = Pair | TwinPair
"""A model that says few tokens, its context, a head for it, and a context of the head."""

Open = Callable[[str], AbstractContextManager[Beside]]

BLOCKS = [
    f"{engine}-{kind}" for engine in ("llamacpp", "mlx") for kind in ("dflash", "dflash2", "dspark")
]
ASSISTANTS = ("llamacpp-gemma4-assistant", "mlx-gemma4-assistant")
ALL = [
    *BLOCKS,
    *ASSISTANTS,
    "llamacpp-lfm2-dspark",
    "llamacpp-qwen35-sidecar",
    *(f"llamacpp-{kind}" for kind in PREDICTING),
]
"""EAGLE-3 is in tests/endtoend/test_heads_exact.py."""

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]
DRAFT = [130, 201, 299, 305]
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.0, top_k=2)

ROUNDING = 1e-3
"""Logits of 6 in passes of other lengths, as sums are in another order: one reply of twelve had a
token that was less likely by 0.00007."""

ALARM = 1e-4
"""A right program fails below it once in 10,000 times."""


@pytest.fixture
def open_kind(request: pytest.FixtureRequest) -> Open:
    def opened(engine_kind: str) -> AbstractContextManager[Beside]:
        engine, _, kind = engine_kind.partition("-")
        if engine == "llamacpp":
            request.getfixturevalue("llamacpp")
            return request.getfixturevalue("talkative")(kind)
        pytest.importorskip("mlx_lm", reason="MLX is not installed")
        if "assistant" in kind:
            return opened_folders(request.getfixturevalue("assisted")(talkative=True))
        return opened_kind(request.getfixturevalue("twin_of"), kind, few=True)

    return opened


@pytest.fixture
def pair(request: pytest.FixtureRequest, open_kind: Open) -> Iterator[Beside]:
    with open_kind(request.param) as found:
        yield found


of_blocks = partial(pytest.mark.parametrize, "pair", indirect=True)
every_block = of_blocks(BLOCKS)
each_engine = of_blocks(["llamacpp-dflash", "mlx-dflash"])
assistants = of_blocks(ASSISTANTS)


def blocks(context: Context) -> BlockContext:
    assert isinstance(context, BlockContext)
    return context


def read(context: Context, text: Sequence[int]) -> None:
    """In passes that are too short for kernels of their own."""
    for start in range(0, len(text), 40):
        context.forward(text[start : start + 40], 0)


def block_after(context: Context, text: Sequence[int], count: int = 3) -> Logits:
    """Rows of a block after a text of which the context holds a part, along the likeliest."""
    context.truncate(min(context.length, len(text) - 1))
    read(context, text[context.length :])
    after, tokens, rows = blocks(context).draft(count), list[int](), list[Logits]()
    while (row := after(tokens)) is not None:
        rows.append(row.copy())
        tokens.append(int(row.argmax()))
    assert len(rows) == count
    return np.array(rows)


def difference(ours: Logits, theirs: Logits) -> float:
    known = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), known)
    return float(np.abs(ours[known] - theirs[known]).max())


def drafter_of(pair: Beside) -> Drafter:
    drafter = drafter_of_head("head", pair.drafts, n_vocab=pair.model.info.n_vocab)
    if isinstance(drafter, BlockDraft):
        return drafter
    return DraftModel("head", pair.drafts, n_vocab=pair.model.info.n_vocab, max_draft=4)


@pytest.mark.parametrize("seed", range(2))
@every_block
def test_drafts_accepted_and_rejected_leave_what_a_new_context_reads(
    pair: Beside, seed: int
) -> None:
    """Lines, steps without a draft, and rewinds, after a text of any length."""
    random = np.random.default_rng(seed)
    context = pair.context
    history = random.integers(3, 300, int(random.integers(1, 90))).tolist()
    read(context, history[:-1])
    for step in range(8):
        if random.integers(3):  # a step that this head did not draft for
            found = block_after(pair.drafts, history)
            with closing(pair.model.open(N_CTX)) as fresh:
                beside = pair.head.open_beside(fresh)
                read(fresh, history[:-1])
                assert difference(found, block_after(beside, history)) < ROUNDING
                beside.close()
        if step == 5 and len(history) > 3:  # an answer is asked for anew
            del history[-2:]
            context.truncate(len(history) - 1)
            continue
        tokens = random.integers(3, 300, int(random.integers(0, 6))).tolist()
        kept = int(random.integers(len(tokens) + 1))
        held = context.length
        context.forward([history[-1], *tokens], len(tokens) + 1)
        context.truncate(held + 1 + kept)
        history += [*tokens[:kept], int(random.integers(3, 300))]


@each_engine
def test_branches_of_a_tree_leave_what_was_kept(pair: Beside) -> None:
    pair.context.forward(PROMPT, 1)
    pair.context.forward_tree([130, 201, 130, 299], [-1, -1, 1, 2])
    pair.context.commit([1, 2])
    text = [*PROMPT, 201, 130, 75]
    found = block_after(pair.drafts, text)
    fresh = pair.head.open_beside(pair.context)
    pair.context.truncate(0)
    pair.context.forward(text[:-1], 1)
    assert difference(found, block_after(fresh, text)) < ROUNDING


@of_blocks([kind for kind in BLOCKS if kind != "llamacpp-dflash2"])
def test_guessed_tokens_are_read_with_the_block_and_leave_nothing(pair: Beside) -> None:
    pair.context.forward(PROMPT, 1)
    text = [*PROMPT, 130]
    before = block_after(pair.drafts, text)
    guessed = block_after(pair.drafts, [*text, 201], count=2)
    assert not np.array_equal(guessed, before[1:]), "the guess is seen"
    assert np.array_equal(block_after(pair.drafts, text), before)


@each_engine
def test_logits_of_several_tokens_are_those_of_one_after_another(pair: Beside) -> None:
    beside = pair.head.open_beside(pair.context)
    pair.context.forward([*PROMPT, *DRAFT], 1)
    for context in (pair.drafts, beside):
        context.forward(PROMPT, 0)
    together = pair.drafts.forward(DRAFT, len(DRAFT))
    for row, token in zip(together, DRAFT, strict=True):
        assert difference(beside.forward([token], 1)[0], row) < ROUNDING


@each_engine
def test_a_block_is_no_longer_than_was_trained(pair: Beside) -> None:
    pair.context.forward(PROMPT, 1)
    pair.drafts.forward([*PROMPT, *DRAFT], 0)
    after = blocks(pair.drafts).draft(BLOCK)
    rest = BLOCK - len(DRAFT)
    assert after([0] * (rest - 1)) is not None
    assert after([0] * rest) is None
    pair.drafts.forward([75], 0)
    assert blocks(pair.drafts).draft(1)([]) is None
    with pytest.raises(ModelError, match="its model has to read"):
        pair.drafts.forward([75], 1)
    assert pair.drafts.length == len(PROMPT) + len(DRAFT) + 1


@each_engine
def test_what_a_restored_context_holds_has_no_entries(pair: Beside) -> None:
    """The head goes on with what is read from then on, and replies stay the model's."""
    context = pair.context
    plain = said(replied(context, PROMPT, GREEDY, Limits(24, frozenset()), None))
    held = [*PROMPT, *plain[:12]]
    context.truncate(len(held))
    state = context.save()
    block_after(pair.drafts, [*PROMPT, 130])
    pair.drafts.truncate(len(PROMPT))
    context.restore(held, state)
    context.forward(plain[12:14], 1)
    assert len(block_after(pair.drafts, [*held, *plain[12:15]])) == 3
    found = replied(context, PROMPT, GREEDY, Limits(24, frozenset()), drafter_of(pair))
    assert said(found) == plain


@each_engine
def test_a_full_context_drafts_nothing(pair: Beside) -> None:
    drafter = BlockDraft("block", blocks(pair.drafts), n_vocab=pair.model.info.n_vocab)
    drafter.begin(PROMPT, Sampler(GREEDY))
    assert drafter.refusal([75] * N_CTX) != ""
    assert len(drafter.propose([75] * N_CTX, 4)) == 0
    for _ in range(N_CTX // len(DRAFT)):
        pair.drafts.forward(DRAFT, 0)
    with pytest.raises(ModelError, match="do not fit"):
        pair.drafts.forward(DRAFT, 0)
    assert pair.drafts.length == N_CTX


@each_engine
def test_a_closed_head_leaves_the_model_as_it_was(pair: Beside) -> None:
    with closing(pair.model.open(N_CTX)) as fresh:
        plain = fresh.forward(PROMPT, 1).copy()
    pair.context.forward(PROMPT[:3], 0)
    pair.head.close()
    assert difference(pair.context.forward(PROMPT[3:], 1), plain) < ROUNDING
    hidden: Any = pair.context
    taps = hidden.taps if hasattr(hidden, "taps") else hidden
    assert not taps._states, "passes leave nothing"


@pytest.mark.parametrize("accepted", range(len(DRAFT) + 1))
@assistants
def test_after_any_draft_an_assistant_is_as_if_it_had_drafted_nothing(
    pair: Beside, accepted: int
) -> None:
    """Its state comes from the model's last pass, and it has no entries of its own: bit by bit."""
    late = pair.head.open_beside(pair.context)
    pair.context.forward(PROMPT, 1)
    drafts, text = pair.drafts, [*PROMPT, 75]
    drafts.forward(text, 1)
    for token in DRAFT:
        drafts.forward([token], 1)
    pair.context.forward([75, *DRAFT], len(DRAFT) + 1)
    pair.context.truncate(len(text) + accepted)
    text += [*DRAFT[:accepted], 310]
    kept = drafts.rollback_to(len(text) - 1)
    assert kept == len(text) - 1, "the model has passed what was accepted"
    drafts.truncate(kept)
    found = drafts.forward(text[kept:], 1).copy()
    assert np.array_equal(late.forward(text, 1), found)


@assistants
def test_guesses_are_read_with_an_assistants_own_states(pair: Beside) -> None:
    one_by_one, together = pair.drafts, pair.head.open_beside(pair.context)
    pair.context.forward(PROMPT, 1)
    one_by_one.forward([*PROMPT, 75], 1)
    found = [one_by_one.forward([token], 1)[0].copy() for token in DRAFT]
    assert np.array_equal(together.forward([*PROMPT, 75, *DRAFT], len(DRAFT)), found)
    assert one_by_one.rollback_to(N_CTX) == len(PROMPT), "guesses are read again"


@assistants
def test_an_assistant_has_no_backlog_after_its_model_has_read(pair: Beside) -> None:
    drafter = DraftModel("assistant", pair.drafts, n_vocab=pair.model.info.n_vocab)
    drafter.begin(PROMPT, Sampler(GREEDY))
    pair.context.forward(PROMPT, 1)
    assert list(drafter.read(PROMPT)) == [len(PROMPT)]
    assert drafter.backlog([*PROMPT, 75]) == 1
    assert pair.drafts.kv_bytes_per_token == 0


@assistants
def test_what_its_model_has_read_past_is_refused(pair: Beside) -> None:
    pair.context.forward([*PROMPT, *DRAFT], 1)
    with pytest.raises(ModelError, match="its model has read further"):
        pair.drafts.forward(PROMPT, 1)
    assert pair.drafts.length == 0


@assistants
def test_before_its_model_has_read_anything_an_assistant_takes_as_long(pair: Beside) -> None:
    """As while costs are measured: what it drafts is of no use, and no engine ends over it."""
    rows = pair.drafts.forward(PROMPT, len(PROMPT))
    assert rows.shape == (len(PROMPT), pair.model.info.n_vocab)
    pair.drafts.truncate(1)
    pair.drafts.forward(DRAFT, 1)


@assistants
def test_branches_of_a_tree_do_not_disturb_an_assistant(pair: Beside) -> None:
    pair.context.forward(PROMPT, 1)
    pair.context.forward_tree([130, 201, 130, 299], [-1, -1, 1, 2])
    pair.context.commit([1, 2])
    found = pair.drafts.forward([*PROMPT, 201, 130, 75], 1).copy()
    pair.context.truncate(len(PROMPT))
    pair.context.forward([201, 130], 1)
    pair.drafts.truncate(0)
    assert difference(pair.drafts.forward([*PROMPT, 201, 130, 75], 1), found) < 1e-4


@pytest.mark.parametrize("pair", ALL, indirect=True)
def test_greedy_replies_are_plain_ones(pair: Beside) -> None:
    """More prompts, and all other drafters, are in tests/endtoend/test_every_drafter.py."""
    random, limits = np.random.default_rng(0), Limits(96, frozenset())
    prompt = random.choice(random.integers(3, 300, 12), 40).tolist()
    found = replied(pair.context, prompt, GREEDY, limits, drafter_of(pair))
    plain = replied(pair.context, prompt, GREEDY, limits, None)
    if said(found) != said(plain):
        for turned in divergences(pair.context, prompt, said(found)):
            assert turned.margin < ROUNDING
    assert sum(step.drafted for step in found) > 96


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", [kind for kind in ALL if kind[0] == "l"], indirect=True)
def test_sampled_replies_follow_the_models_own_law(pair: Beside, count: int) -> None:
    found = chance(pair.context, PROMPT, SAMPLED, drafter_of(pair), count, more=3, accepted=0.05)
    assert found >= ALARM


@pytest.mark.slow
@pytest.mark.parametrize("pair", [kind for kind in ALL if kind[0] == "m"], indirect=True)
def test_sampled_replies_of_mlx_follow_the_models_own_law(pair: Beside) -> None:
    found = chance(pair.context, PROMPT, SAMPLED, drafter_of(pair), 80, more=3, accepted=0.05)
    assert found >= ALARM
