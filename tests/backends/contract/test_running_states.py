"""Running states of both engines taken back: all is as in a context that never ran the rest.

llama.cpp gives the same bits after passes over several tokens: one token takes other kernels.
"""

from contextlib import closing

import numpy as np
import pytest

from backends.base import NO_COPIES, Context, ModelError, Rollback, RollbackRefusedError
from backends.base.checkpoints import MOST
from tests.backends.contract.conftest import Loaded
from tests.fixtures.tiny.taken_back import DRAFT, PROMPT, TEXT, expected, read, rows_after


def test_the_model_says_how_far_it_goes_back(stateful: Loaded, context: Context) -> None:
    assert stateful.model.info.rollback is Rollback.BOUNDED
    assert not context.can_roll_back
    assert context.max_rollback >= len(DRAFT)
    assert context.draft_refusal == ""
    assert context.state_bytes > 0


def test_where_nothing_drafts_there_are_no_copies(stateful: Loaded, context: Context) -> None:
    with closing(stateful.model.open(512, drafts=False)) as plain:
        assert (plain.max_rollback, plain.draft_refusal) == (0, NO_COPIES)
        assert 2 * plain.state_bytes <= context.state_bytes
        plain.forward(PROMPT, 0)
        plain.checkpoint()
        assert stateful.near(rows_after(plain), expected(stateful.model, PROMPT))
        assert plain.rollback_to(len(PROMPT) + 1) == len(PROMPT), "only where it was asked to"
        plain.truncate(len(PROMPT))
        assert stateful.near(rows_after(plain), expected(stateful.model, PROMPT))


@pytest.mark.slow
def test_the_models_remember_what_they_read(stateful: Loaded) -> None:
    """Otherwise the comparisons below would prove nothing."""
    forgot = [*PROMPT[:4], 7, *PROMPT[5:]]
    difference = np.abs(expected(stateful.model, forgot) - expected(stateful.model, PROMPT)).max()
    assert difference > 100 * max(stateful.rounding, 1e-5)


@pytest.mark.parametrize("length", [1, 2, len(DRAFT)])
def test_every_depth_of_a_pass_of_every_length(
    stateful: Loaded, context: Context, length: int
) -> None:
    draft = DRAFT[:length]
    for rejected in range(length + 1):
        context.truncate(0)
        context.forward(PROMPT[:-1], 0)
        context.forward([PROMPT[-1], *draft], 1 + length)
        text = [*PROMPT, *draft][: len(PROMPT) + length - rejected]
        assert context.rollback_to(len(text)) == len(text)
        context.truncate(len(text))
        assert list(context.tokens) == text
        assert stateful.near(rows_after(context), expected(stateful.model, text))


def test_only_the_last_pass_is_taken_back(context: Context) -> None:
    context.forward(PROMPT, 0)
    context.forward(DRAFT, 1)
    context.forward([5], 1)
    held = context.length
    assert context.rollback_to(held - 2) == 0
    with pytest.raises(RollbackRefusedError, match="running state"):
        context.truncate(held - 2)
    assert context.length == held


@pytest.mark.parametrize("length", [-1, 10, 1000])
def test_a_cut_past_the_end_changes_nothing(
    stateful: Loaded, context: Context, length: int
) -> None:
    context.forward(PROMPT, 0)
    with pytest.raises(ModelError, match="cannot be cut"):
        context.truncate(length)
    assert stateful.near(rows_after(context), expected(stateful.model, PROMPT))


@pytest.mark.parametrize("seed", range(3))
def test_random_acceptance_leaves_the_state_of_the_text(
    stateful: Loaded, context: Context, seed: int
) -> None:
    """Drafts of every length, of which nothing, a part or all is kept.

    The other context runs what is kept; a token that is kept alone is run with another one, as its
    rounding is that of a longer pass.
    """
    random = np.random.default_rng(seed)
    with closing(stateful.model.open(512)) as other:
        for one in (context, other):
            one.forward(PROMPT, 1)
        for _ in range(30):
            most = min(context.max_rollback, len(DRAFT)) + 2
            tokens = random.integers(3, 300, int(random.integers(2, most))).tolist()
            kept = int(random.integers(1, len(tokens) + 1))
            length = context.length
            context.forward(tokens, len(tokens))
            context.truncate(length + kept)
            other.forward([*tokens[:kept], 5][: max(kept, 2)], 0)
            other.truncate(length + kept)
        assert list(context.tokens) == list(other.tokens)
        assert stateful.near(rows_after(context), rows_after(other))


def test_a_state_saved_after_a_rollback_is_the_one_gone_back_to(
    stateful: Loaded, context: Context
) -> None:
    context.forward(PROMPT, 0)
    context.truncate(len(PROMPT) - 3)
    with closing(stateful.model.open(512)) as other:
        other.forward(DRAFT, 0)
        other.restore(PROMPT[:-3], context.save())
        assert other.rollback_to(len(PROMPT) - 4) == 0
        with pytest.raises(RollbackRefusedError):
            other.truncate(len(PROMPT) - 4)
        assert np.array_equal(rows_after(other), rows_after(context))


def test_contexts_of_one_model_do_not_share_what_they_record(
    stateful: Loaded, context: Context
) -> None:
    with closing(stateful.model.open(512)) as other:
        context.forward(PROMPT, len(PROMPT))
        other.forward(DRAFT, len(DRAFT))
        context.truncate(5)
        other.truncate(3)
        assert stateful.near(rows_after(context), expected(stateful.model, PROMPT[:5]))
        assert stateful.near(rows_after(other), expected(stateful.model, DRAFT[:3]))


def test_what_follows_a_checkpoint_has_the_bits_of_the_first_time(context: Context) -> None:
    read(context, TEXT[:30])
    context.checkpoint()
    first = rows_after(context)
    read(context, TEXT[30:90])
    assert [context.rollback_to(length) for length in (95, 92, 81, 50, 29)] == [92, 92, 30, 30, 0]
    for _ in range(2):
        context.truncate(30)
        assert list(context.tokens) == TEXT[:30]
        assert np.array_equal(rows_after(context), first)


def test_a_checkpoint_after_a_rollback_is_of_the_text_that_is_left(context: Context) -> None:
    read(context, TEXT[:30])
    context.truncate(27)
    context.checkpoint()
    first = rows_after(context)
    read(context, TEXT[50:70])
    context.truncate(27)
    assert np.array_equal(rows_after(context), first)


def test_a_brief_checkpoint_takes_the_place_of_the_brief_one_before(context: Context) -> None:
    read(context, TEXT[:20])
    context.checkpoint()
    for length in (30, 40):
        read(context, TEXT[length - 10 : length])
        context.checkpoint(is_brief=True)
    read(context, TEXT[40:60])
    assert [context.rollback_to(length) for length in (49, 40, 39, 19)] == [40, 40, 20, 0]
    context.truncate(20)
    read(context, TEXT[100:130])
    assert context.rollback_to(39) == 20


def test_the_last_few_checkpoints_stay(context: Context) -> None:
    for start in range(0, 150, 10):
        read(context, TEXT[start : start + 10])
        context.checkpoint()
    context.forward([7], 0)
    lengths = [length for length in range(1, 150) if context.rollback_to(length) == length]
    assert lengths == list(range(150 - 10 * (MOST - 1), 150, 10))


def test_without_memory_for_a_checkpoint_only_the_beginning_is_left(
    stateful: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"mlx": "context", "llamacpp": "model"}[stateful.model.info.backend]
    name = f"backends.{stateful.model.info.backend}.{module}._CHECKPOINTS_SHARE"
    monkeypatch.setattr(name, 1 << 40)
    with closing(stateful.model.open(64)) as context:
        read(context, TEXT[:20])
        context.checkpoint()
        read(context, TEXT[20:40])
        assert context.rollback_to(20) == 0
        with pytest.raises(RollbackRefusedError):
            context.truncate(20)
        context.truncate(0)
        assert context.length == 0
