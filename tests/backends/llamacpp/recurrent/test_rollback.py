"""Running states taken back: every depth gives the bits of a context that never ran the rest.

They are compared with passes over several tokens, as a pass over one is rounded by other kernels.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from backends.base import (
    NO_COPIES,
    Context,
    Logits,
    Model,
    OutOfMemoryError,
    Rollback,
    RollbackRefusedError,
)

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.llamacpp import running_state

PROMPT = [40, 41, 42, 43, 44, 45, 46, 47, 48]
DRAFT = [60, 71, 82, 93, 104, 115, 126]
THEN = [50, 51]


@pytest.fixture
def context(hybrid: Model) -> Iterator[Context]:
    with closing(hybrid.open(512)) as context:
        yield context


def rows_after(context: Context, tokens: Sequence[int]) -> Logits:
    """Logits after each of the last tokens, one pass for each."""
    return np.stack([context.forward([token], 1)[0].copy() for token in tokens])


def expected(hybrid: Model, text: Sequence[int]) -> Logits:
    """Logits of THEN in a new context that has read text in one pass."""
    with closing(hybrid.open(512)) as context:
        context.forward(text, 0)
        return rows_after(context, THEN)


def test_the_model_says_how_far_it_goes_back(hybrid: Model, context: Context) -> None:
    assert hybrid.info.rollback is Rollback.BOUNDED
    assert not context.can_roll_back
    assert context.max_rollback == len(DRAFT)
    assert context.draft_refusal == ""
    assert not context.can_verify_tree
    assert "running state" in context.tree_refusal


def test_where_nothing_drafts_there_are_no_copies(hybrid: Model, context: Context) -> None:
    with closing(hybrid.open(512, drafts=False)) as plain:
        assert (plain.max_rollback, plain.draft_refusal) == (0, NO_COPIES)
        assert (1 + context.max_rollback) * plain.state_bytes == context.state_bytes
        plain.forward(PROMPT, 0)
        assert np.array_equal(rows_after(plain, THEN), expected(hybrid, PROMPT))


@pytest.mark.parametrize("rejected", range(len(DRAFT) + 1))
def test_every_depth_has_the_bits_of_a_context_that_ran_no_more(
    hybrid: Model, context: Context, rejected: int
) -> None:
    context.forward(PROMPT[:-1], 0)
    context.forward([PROMPT[-1], *DRAFT], 8)
    length = len(PROMPT) + len(DRAFT) - rejected
    assert context.rollback_to(length) == length
    context.truncate(length)
    assert list(context.tokens) == [*PROMPT, *DRAFT][:length]
    assert np.array_equal(rows_after(context, THEN), expected(hybrid, [*PROMPT, *DRAFT][:length]))


def test_only_tokens_of_the_last_pass_are_taken_back_and_once(context: Context) -> None:
    context.forward(PROMPT, 0)
    for tokens, kept in (([1], 9), ([1, 2], 9), ([1, 2, 3], 10), ([*DRAFT, 1, 2, 3], 9)):
        held = context.length
        context.forward(tokens, 0)
        too_far = max(kept, held) if len(tokens) < 8 else context.length - 8
        with pytest.raises(RollbackRefusedError, match="running state"):
            context.truncate(too_far)
        assert context.rollback_to(too_far) == 0
        assert context.length == held + len(tokens)
    context.truncate(context.length - 2)
    assert context.rollback_to(context.length - 1) == 0
    with pytest.raises(RollbackRefusedError):
        context.truncate(context.length - 1)


def test_nothing_is_taken_back_of_a_restored_state(hybrid: Model, context: Context) -> None:
    context.forward(PROMPT, 0)
    state = context.save()
    with closing(hybrid.open(512)) as other:
        other.forward([*DRAFT, *DRAFT], 0)
        other.restore(PROMPT, state)
        with pytest.raises(RollbackRefusedError):
            other.truncate(len(PROMPT) - 1)
        assert np.array_equal(rows_after(other, THEN), rows_after(context, THEN))


def test_a_state_saved_after_a_rollback_is_the_one_gone_back_to(
    hybrid: Model, context: Context
) -> None:
    context.forward(PROMPT, 0)
    context.truncate(len(PROMPT) - 3)
    with closing(hybrid.open(512)) as other:
        other.restore(PROMPT[:-3], context.save())
        assert np.array_equal(rows_after(other, THEN), rows_after(context, THEN))


@pytest.mark.parametrize("seed", range(4))
def test_random_acceptance_leaves_the_state_of_the_text(
    hybrid: Model, context: Context, seed: int
) -> None:
    """Drafts of every length, of which nothing, a part or all is kept.

    The other context runs what is kept; a token that is kept alone is run with another one, as its
    rounding is that of a longer pass.
    """
    random = np.random.default_rng(seed)
    with closing(hybrid.open(512)) as other:
        for one in (context, other):
            one.forward(PROMPT, 1)
        for _ in range(40):
            tokens = random.integers(
                3, 300, int(random.integers(2, context.max_rollback + 2))
            ).tolist()
            kept = int(random.integers(1, len(tokens) + 1))
            length = context.length
            context.forward(tokens, len(tokens))
            context.truncate(length + kept)
            other.forward([*tokens[:kept], 5][: max(kept, 2)], 0)
            other.truncate(length + kept)
        assert list(context.tokens) == list(other.tokens)
        assert np.array_equal(rows_after(context, THEN), rows_after(other, THEN))


def test_counting_one_token_too_many_is_noticed(
    hybrid: Model, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes back as much after any pass, and goes on from a state of another one."""
    monkeypatch.setattr(running_state, "kept_snapshots", lambda n_tokens, depth: depth)
    context.forward(PROMPT, 0)
    context.forward([50], 1)
    context.truncate(len(PROMPT))
    stale = rows_after(context, THEN)
    assert np.abs(stale - expected(hybrid, PROMPT)).max() > 0.1


def least_memory(model: Model, monkeypatch: pytest.MonkeyPatch) -> int:
    """Free bytes with which a context of 64 tokens just opens."""
    too_few, enough = 0, 1 << 30
    while enough - too_few > 1:
        free = (too_few + enough) // 2
        with monkeypatch.context() as patch:
            patch.setattr("backends.llamacpp.model.available_memory", partial(int, free))
            try:
                model.open(64).close()
            except OutOfMemoryError:
                too_few = free
            else:
                enough = free
    return enough


@pytest.mark.parametrize("copies", [0, 2])
def test_where_memory_is_short_there_are_fewer_copies_or_none(
    hybrid: Model, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    with closing(hybrid.open(64)) as context:
        state_bytes = context.state_bytes // (1 + context.max_rollback)
    free = least_memory(hybrid, monkeypatch) + copies * state_bytes
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: free)
    with closing(hybrid.open(64)) as context:
        assert context.max_rollback == copies
        assert context.state_bytes == (1 + copies) * state_bytes
        assert ("no memory for copies" in context.draft_refusal) == (copies == 0)
        context.forward(PROMPT, 1)
