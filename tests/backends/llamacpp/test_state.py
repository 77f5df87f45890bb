"""Saving and restoring the cache of a llama.cpp context."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import (
    CacheState,
    Context,
    Logits,
    Model,
    ModelError,
    OutOfMemoryError,
    RollbackRefusedError,
)
from decoding.prefill import prefill, reuse
from tests.fixtures.tiny.kinds import Tiny

PROMPT = [504, 2210, 282, 4649, 314, 260, 3575, 30] * 5


@pytest.fixture
def context(demo: Model) -> Iterator[Context]:
    with closing(demo.open(512)) as context:
        yield context


@pytest.fixture
def other(demo: Model) -> Iterator[Context]:
    """Another context of the same kind, which holds something else."""
    with closing(demo.open(512)) as context:
        context.forward([1, 2, 3, 4, 5], 0)
        yield context


def read(context: Context, tokens: list[int]) -> None:
    for _ in prefill(context, tokens):
        pass


def greedy(context: Context, first: int, count: int = 8) -> tuple[list[int], Logits]:
    """The next tokens, and every row of logits on the way."""
    tokens, rows = [first], list[Logits]()
    for _ in range(count):
        rows.append(context.forward(tokens[-1:], 1)[0].copy())
        tokens.append(int(rows[-1].argmax()))
    return tokens, np.array(rows)


def test_what_follows_has_the_same_bits_as_without(context: Context, other: Context) -> None:
    read(context, PROMPT)
    other.restore(PROMPT, context.save())
    assert list(other.tokens) == PROMPT
    tokens, rows = greedy(context, 30)
    again, rows_again = greedy(other, 30)
    assert tokens == again
    assert np.array_equal(rows, rows_again)


def test_it_is_the_same_after_rejected_tokens_and_after_a_rollback(
    context: Context, other: Context
) -> None:
    read(context, PROMPT)
    context.forward([9, 8, 7], 1)
    context.truncate(len(PROMPT) + 1)
    context.forward([6], 1)
    other.restore([*PROMPT, 9, 6], context.save())
    for one in (context, other):
        one.truncate(30)
    assert list(other.tokens) == PROMPT[:30]
    assert np.array_equal(greedy(context, 30)[1], greedy(other, 30)[1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state[:1000],
        lambda state: state[:-1],
        lambda state: state[:0],
        lambda state: np.concatenate([state, state[:8]]),
        np.zeros_like,
    ],
    ids=["beginning", "one byte less", "nothing", "more", "zeros"],
)
def test_what_the_engine_refuses_leaves_an_empty_context_that_works(
    context: Context, other: Context, damage: Callable[[CacheState], CacheState]
) -> None:
    read(context, PROMPT[:20])
    with pytest.raises(ModelError, match="saved cache"):
        other.restore(PROMPT[:20], damage(context.save()).copy())
    assert other.length == 0
    read(other, PROMPT[:20])
    assert np.array_equal(greedy(context, 30)[1], greedy(other, 30)[1])


def test_tokens_of_another_count_are_refused(context: Context, other: Context) -> None:
    read(context, PROMPT[:20])
    for tokens in (PROMPT[:19], PROMPT[:21], []):
        with pytest.raises(ModelError, match="saved cache"):
            other.restore(tokens, context.save())
        assert other.length == 0


def test_a_smaller_context_refuses_what_it_cannot_hold(demo: Model, context: Context) -> None:
    read(context, PROMPT)
    with closing(demo.open(16)) as small, pytest.raises(ModelError, match="saved cache"):
        small.restore(PROMPT, context.save())


def test_the_state_of_another_model_is_refused(
    context: Context, other: Context, tiny_llama: Callable[..., Path]
) -> None:
    with closing(llamacpp.load(tiny_llama())) as model:
        tiny = model.open(64)
        tiny.forward([5, 6, 7], 0)
        with pytest.raises(ModelError, match="saved cache"):
            other.restore([5, 6, 7], tiny.save())
    assert other.length == 0


def test_a_copy_that_memory_does_not_hold_is_refused(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(context, PROMPT)
    monkeypatch.setattr("backends.llamacpp.context.available_memory", lambda: 1_000_000)
    with pytest.raises(OutOfMemoryError, match="saved"):
        context.save()


def test_a_running_state_is_restored_too(tiny_mamba: Path) -> None:
    with closing(llamacpp.load(tiny_mamba)) as model:
        context, other = model.open(64), model.open(64)
        for one in (context, other):
            one.forward([5, 6, 7, 8], 0)
        other.truncate(0)
        other.forward([9], 0)
        other.restore([5, 6, 7, 8], context.save())
        assert list(other.tokens) == [5, 6, 7, 8]
        assert np.array_equal(greedy(context, 9)[1], greedy(other, 9)[1])


@pytest.mark.parametrize("back", [0, 1, 5, 40])
def test_of_a_restored_state_with_windows_only_what_it_holds_is_reached(
    tiny: Tiny, back: int
) -> None:
    """llama.cpp saves of layers with a window what the last token sees, and nothing before."""
    text = [1, *range(100, 160)]
    with closing(llamacpp.load(tiny("gemma4"), threads=1)) as model:
        context = model.open(128)
        context.forward(text, 1)
        context.restore(text, context.save())
        assert context.rollback_to(len(text) - back) == (0 if back else len(text))
        if back:
            with pytest.raises(RollbackRefusedError):
                context.truncate(len(text) - back)
        following = [*text[: len(text) - back], 7, 8, 9]
        *_, (_, row) = prefill_after_reuse(context, following)
        fresh = model.open(128)
        assert np.abs(row - fresh.forward(following, 1)).max() < 2e-3, "without them 0.06 and more"
        context.truncate(0)
        assert context.rollback_to(0) == 0


def prefill_after_reuse(context: Context, text: list[int]) -> list[tuple[int, Logits]]:
    reuse(context, text)
    return list(prefill(context, text))
