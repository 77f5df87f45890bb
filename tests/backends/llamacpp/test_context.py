"""Contexts of llama.cpp: logits as views, rollback, saved states, stopped passes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

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
    PassStoppedError,
    Rollback,
    RollbackRefusedError,
    UsageError,
)
from backends.base.model import CacheType, stopping_passes
from backends.llamacpp import pass_callbacks
from decoding.draft import MOST_DRAFTED
from decoding.prefill import prefill, reuse
from tests.fixtures.card import has_card
from tests.fixtures.rounding import bound
from tests.fixtures.tiny.kinds import Tiny

PROMPT = [504, 2210, 282, 4649, 314, 260, 3575, 30]


@pytest.fixture
def context(demo: Model) -> Iterator[Context]:
    with closing(demo.open(512)) as context:
        yield context


def test_logits_are_a_view_of_the_engines_own_rows(context: Context):
    first = context.forward(PROMPT, 3)
    assert first.shape == (3, 49152)
    assert first.dtype == np.float32
    kept = first.copy()
    second = context.forward([30], 1)
    assert np.shares_memory(first, second)
    assert not np.array_equal(first[0], kept[0])


def test_passes_of_one_width_repeat_to_the_bit_and_on_a_card_those_alone(context: Context):
    context.forward(PROMPT, 0)
    rows: list[np.ndarray] = []
    for _ in range(2):
        context.truncate(len(PROMPT))
        rows.append(context.forward([40, 41, 42], 3).copy())
    context.truncate(len(PROMPT))
    alone = np.vstack([context.forward([token], 1).copy() for token in (40, 41, 42)])
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], alone) is not has_card()
    assert np.corrcoef(rows[0].ravel(), alone.ravel())[0, 1] > 0.99


@pytest.mark.slow
def test_rows_are_found_where_the_engine_has_moved_them(demo: Model, context: Context):
    """Its buffer grows with the most rows asked for; those of one token come before and after."""
    expected = dict[int, Logits]()
    for count in (1, 8, 3):
        with closing(demo.open(512)) as alone:
            expected[count] = alone.forward(PROMPT, count).copy()
    for count in (1, 8, 1, 3, 8, 1):
        context.truncate(0)
        assert np.array_equal(context.forward(PROMPT, count), expected[count])
        further = context.forward(list(range(1000, 1063)), 63 if count == 3 else 0)
        assert further.shape[0] == (63 if count == 3 else 0)


@pytest.mark.processor("passes of other widths have the same bits")
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 16, 17])
def test_several_tokens_at_once_give_the_same_bits_as_one_by_one(context: Context, count: int):
    tokens = list(range(1000, 1000 + count))
    context.forward(PROMPT, 0)
    together = context.forward(tokens, count).copy()
    context.truncate(len(PROMPT))
    alone = np.stack([context.forward([token], 1)[0].copy() for token in tokens])
    assert np.array_equal(together, alone)


@pytest.mark.slow
@pytest.mark.processor("passes of other widths have the same bits")
@pytest.mark.parametrize("held", [8, 300])
def test_the_longest_pass_over_a_draft_gives_the_bits_of_single_steps(demo: Model, held: int):
    """At any length on one thread; one token more takes another kernel of attention."""
    context = demo.open(1024)
    most = min(context.max_logits, 1 + MOST_DRAFTED)
    text = [1000 + 7 * number % 1013 for number in range(held + 64)]
    for _ in prefill(context, text[:held], 0):
        pass
    alone = np.stack([context.forward([token], 1)[0].copy() for token in text[held:]])
    for count in (2, 5, most - 1, most, context.max_logits):
        context.truncate(held)
        together = context.forward(text[held : held + count], count)
        assert np.array_equal(together, alone[:count]), count
    context.truncate(held)
    changed = context.forward(text[held:], 1)
    assert not np.array_equal(changed[0], alone[-1]), "64 tokens are a block"
    context.close()


@pytest.mark.slow
@pytest.mark.processor("passes of other widths have the same bits")
@pytest.mark.parametrize("cache_type", [CacheType.F16, CacheType.Q8_0])
def test_where_a_seed_repeats_a_long_text(demo_file: Path, cache_type: CacheType):
    """As docs/how-it-works/lossless.md says: of half floats on two threads, single steps differ.

    Threads share out the text there. Passes of several tokens agree even so.
    """
    with closing(llamacpp.load(demo_file, threads=2, cache_type=cache_type)) as model:
        context = model.open(512)
        text = [1000 + 7 * number % 1013 for number in range(320)]
        for _ in prefill(context, text[:300], 0):
            pass

        def rows(*lengths: int) -> np.ndarray:
            context.truncate(300)
            found: list[np.ndarray] = []
            for length in lengths:
                following = text[context.length : context.length + length]
                found += [row.copy() for row in context.forward(following, length)]
            return np.stack(found)

        together = rows(20)
        assert np.array_equal(rows(2, 5, 11, 2), together)
        assert np.array_equal(rows(*[1] * 20), together) is (cache_type is CacheType.Q8_0)


@pytest.mark.slow
@pytest.mark.processor("passes of other widths have the same bits")
def test_a_block_is_computed_alike_in_every_long_pass_and_its_rest_in_every_short_one(
    context: Context,
):
    """What comes of a prompt does not depend on where it was cut, at the end of whole blocks."""
    assert context.exact_batch == 64
    tokens = list(range(1000, 1160))

    def last_row(*lengths: int) -> np.ndarray:
        context.truncate(0)
        for length in lengths[:-1]:
            context.forward(tokens[context.length : context.length + length], 0)
        return context.forward(tokens[context.length :], 1)[0].copy()

    *_, (_, rows) = prefill(context, tokens)
    expected = rows[0].copy()
    for lengths in ((64, 64, 32), (128, 32), (128, 16, 4, 12), (64, 64, 28, 4)):
        assert np.array_equal(last_row(*lengths), expected), lengths
    assert not np.array_equal(last_row(160), expected)  # else blocks are not needed any more


@pytest.mark.slow
def test_contexts_of_two_threads_run_at_once_without_disturbing_each_other(demo: Model):
    """Each thread has its own context; the engine leaves Python's lock to the other meanwhile."""
    contexts = [demo.open(64) for _ in range(2)]
    texts = PROMPT, [*reversed(PROMPT)]

    def rows(context: Context, text: list[int]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for _ in range(8):
            context.truncate(0)
            found.append(context.forward(text, 1).copy())
        return found

    expected = [rows(*one) for one in zip(contexts, texts, strict=True)]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(rows, contexts, texts))
    assert np.array_equal(found, expected)
    for context in contexts:
        context.close()


def test_a_token_that_does_not_exist_is_an_error_and_changes_nothing(context: Context):
    context.forward(PROMPT[:-1], 0)
    expected = context.forward(PROMPT[-1:], 1).copy()
    with pytest.raises(ModelError):
        context.forward([1_000_000], 1)
    context.truncate(len(PROMPT) - 1)
    assert np.array_equal(context.forward(PROMPT[-1:], 1), expected)


def test_a_recurrent_model_answers_and_says_that_it_cannot_roll_back(tiny_mamba: Path):
    model = llamacpp.load(tiny_mamba)
    context = model.open(64)
    assert model.info.rollback is Rollback.NONE
    assert not context.can_roll_back
    first = context.forward([5, 6, 7], 1).copy()
    with pytest.raises(RollbackRefusedError, match="running state"):
        context.truncate(2)
    assert context.length == 3
    context.truncate(0)
    assert np.array_equal(context.forward([5, 6, 7], 1), first)
    model.close()


def test_a_context_beyond_what_the_model_was_trained_for_is_refused(demo: Model):
    with pytest.raises(UsageError, match="8,192"):
        demo.open(8193)


@pytest.mark.processor("llama.cpp tells what a card has no room for")
def test_a_context_that_does_not_fit_in_memory_is_refused_with_figures(
    demo: Model, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backends.llamacpp.model.available_memory", lambda: 150_000_000)
    with pytest.raises(OutOfMemoryError, match=r"needs 0\.2 GB: 0\.1 GB are free") as caught:
        demo.open(8192)
    assert "--ctx" in caught.value.remedy
    demo.open(1024).close()


def test_closing_twice_and_closing_the_model_first_are_harmless(tiny_llama: Callable[..., Path]):
    model = llamacpp.load(tiny_llama())
    context = model.open(64)
    model.close()
    context.close()
    model.close()


REPEATED = [504, 2210, 282, 4649, 314, 260, 3575, 30] * 5


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


def test_it_is_the_same_after_rejected_tokens_and_after_a_rollback(
    context: Context, other: Context
) -> None:
    read(context, REPEATED)
    context.forward([9, 8, 7], 1)
    context.truncate(len(REPEATED) + 1)
    context.forward([6], 1)
    other.restore([*REPEATED, 9, 6], context.save())
    for one in (context, other):
        one.truncate(30)
    assert list(other.tokens) == REPEATED[:30]
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
    read(context, REPEATED[:20])
    with pytest.raises(ModelError, match="saved cache"):
        other.restore(REPEATED[:20], damage(context.save()).copy())
    assert other.length == 0
    read(other, REPEATED[:20])
    assert np.array_equal(greedy(context, 30)[1], greedy(other, 30)[1])


def test_tokens_of_another_count_are_refused(context: Context, other: Context) -> None:
    read(context, REPEATED[:20])
    for tokens in (REPEATED[:19], REPEATED[:21], []):
        with pytest.raises(ModelError, match="saved cache"):
            other.restore(tokens, context.save())
        assert other.length == 0


def test_a_smaller_context_refuses_what_it_cannot_hold(demo: Model, context: Context) -> None:
    read(context, REPEATED)
    with closing(demo.open(16)) as small, pytest.raises(ModelError, match="saved cache"):
        small.restore(REPEATED, context.save())


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
    read(context, REPEATED)
    monkeypatch.setattr("backends.llamacpp.sequences.available_memory", lambda: 1_000_000)
    with pytest.raises(OutOfMemoryError, match="saved"):
        context.save()


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
        difference = np.abs(row - fresh.forward(following, 1)).max()
        assert difference < bound(2e-3, 0.03), "without them 0.06 and more"
        context.truncate(0)
        assert context.rollback_to(0) == 0


def prefill_after_reuse(context: Context, text: list[int]) -> list[tuple[int, Logits]]:
    reuse(context, text)
    return list(prefill(context, text))


BEFORE = list(range(1000, 1032))
LONG = list(range(2000, 2256))


@pytest.mark.slow
@pytest.mark.processor("the engine asks there whether to go on")
def test_a_long_pass_is_stopped_and_what_was_read_before_stays(context: Context) -> None:
    assert context.stops_passes
    context.forward(BEFORE, 0)
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(context.length)
        return True

    with stopping_passes(is_stopped), pytest.raises(PassStoppedError):
        context.forward(LONG, 0)
    assert len(asked) == 1
    assert context.tokens == BEFORE
    stopped = context.forward(LONG, 1).copy()
    context.truncate(0)
    context.forward(BEFORE, 0)
    assert np.array_equal(context.forward(LONG, 1), stopped)


@pytest.mark.slow
@pytest.mark.processor("the engine asks there whether to go on")
def test_a_pass_that_nothing_stops_runs_to_its_end(context: Context) -> None:
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(context.length)
        return False

    with stopping_passes(is_stopped):
        within = context.forward(LONG, 1).copy()
    assert asked
    context.truncate(0)
    assert np.array_equal(context.forward(LONG, 1), within)


@pytest.mark.slow
@pytest.mark.processor("the engine asks there whether to go on")
def test_without_a_thread_to_watch_a_pass_the_next_ones_are_as_ever(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = context.forward(LONG, 1).copy()
    context.truncate(0)
    callbacks: list[object] = []
    told: Any = pass_callbacks.api.llama_set_abort_callback

    def noting(pointer: object, callback: object, data: object) -> None:
        callbacks.append(callback)
        told(pointer, callback, data)

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(pass_callbacks.api, "llama_set_abort_callback", noting)
        patch.setattr(Thread, "start", refused)
        with stopping_passes(lambda: True), pytest.raises(RuntimeError):
            context.forward(LONG, 0)
    assert callbacks[-1] is pass_callbacks._NEVER
    assert np.array_equal(context.forward(LONG, 1), expected)


def test_short_passes_and_drafts_are_not_watched(context: Context) -> None:
    def is_stopped() -> bool:
        raise AssertionError("a thread watches it")

    with stopping_passes(is_stopped):
        context.forward(BEFORE[:8], 1)
        context.forward(BEFORE, len(BEFORE))


@pytest.mark.processor("the engine asks there whether to go on")
def test_a_running_state_is_stopped_only_where_it_can_come_back(hybrid: Model) -> None:
    with closing(hybrid.open(256)) as context:
        context.forward(range(9, 18), 0)
        with stopping_passes(lambda: True):
            context.forward(range(20, 52), 0)  # it would lose what was read before
        assert context.length == 9 + 32
        assert context.stops_passes
