"""Which outcomes of a verification are drafted for, and in which order."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.drafters import overlapping
from decoding.drafters.cascade import Vote
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.overlapping import (
    MOST_CANDIDATES,
    MOST_OUTCOMES,
    DrafterThread,
    Outcome,
    Overlapping,
    kept_distribution,
    likeliest_outcomes,
)
from decoding.events import Ahead
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.workers import StepwiseWorker


def test_the_numbers_of_kept_tokens_have_the_chances_of_a_chain() -> None:
    chances = kept_distribution([0.9, 0.5])
    assert chances == pytest.approx([0.1, 0.45, 0.45])
    assert sum(kept_distribution([0.3, 0.8, 1.0, 0.0])) == pytest.approx(1.0)


def test_the_likeliest_outcome_comes_first() -> None:
    assert likeliest_outcomes([0.9, 0.9])[0] == Outcome(2, 0)
    assert likeliest_outcomes([0.2, 0.9])[0] == Outcome(0, 0)
    assert likeliest_outcomes([0.95, 0.1])[0] == Outcome(1, 0)


def test_every_outcome_comes_once_and_candidates_in_order() -> None:
    outcomes = likeliest_outcomes([0.8, 0.7, 0.6, 0.5, 0.4])
    assert len(set(outcomes)) == len(outcomes) == MOST_OUTCOMES
    for kept in range(6):
        ranks = [outcome.rank for outcome in outcomes if outcome.kept == kept]
        assert ranks == list(range(len(ranks)))
        assert len(ranks) <= MOST_CANDIDATES


@pytest.mark.parametrize("count", [10, 20])
def test_the_fan_out_is_that_of_the_power_law(count: int) -> None:
    """F_k in proportion to the root of P(k), but for rounding and the most candidates."""
    acceptance = [0.7, 0.6, 0.8]
    taken = Counter(one.kept for one in likeliest_outcomes(acceptance)[:count])
    shares = [chance**0.5 for chance in kept_distribution(acceptance)]
    for kept, share in enumerate(shares):
        wanted = min(count * share / sum(shares), MOST_CANDIDATES)
        assert abs(taken[kept] - wanted) <= 1.5


SECONDS = 60.0
"""Until a test that hangs is ended."""


@pytest.fixture
def thread() -> Iterator[DrafterThread]:
    thread = DrafterThread()
    yield thread
    thread.close()


def test_passes_run_on_a_thread_of_their_own_until_the_last(thread: DrafterThread) -> None:
    names, ended = set[str](), Event()

    def passes() -> Iterator[None]:
        for _ in range(3):
            names.add(current_thread().name)
            yield
        ended.set()

    for _ in range(2):
        thread.start(passes())
        assert ended.wait(SECONDS)
        thread.stop()
        ended.clear()
    assert len(names) == 1, "a thread that is kept, as engines keep others for it"
    assert main_thread().name not in names


def test_stop_waits_for_the_present_pass_and_starts_no_other(thread: DrafterThread) -> None:
    began, may_end, done = Event(), Event(), list[int]()

    def passes() -> Iterator[None]:
        for number in range(1000):
            began.set()
            assert may_end.wait(SECONDS)
            done.append(number)
            if number == 0:
                thread._is_stopped = True  # as stop does, which the test could not call in time
            yield

    thread.start(passes())
    assert began.wait(SECONDS)
    assert not done
    may_end.set()
    thread.stop()
    assert done == [0]


def test_what_a_pass_raised_is_raised_once_by_stop(thread: DrafterThread) -> None:
    began = Event()

    def passes() -> Iterator[None]:
        began.set()
        raise RuntimeError("the engine failed")
        yield

    thread.start(passes())
    assert began.wait(SECONDS)
    with pytest.raises(RuntimeError, match="the engine failed"):
        thread.stop()
    thread.stop()
    thread.start(iter([None]))
    thread.stop()


def test_a_round_must_have_been_stopped_before_the_next(thread: DrafterThread) -> None:
    thread.start(iter([None]))
    with pytest.raises(AssertionError, match="not stopped"):
        thread.start(iter([None]))


def test_closing_ends_it_whatever_a_pass_raised() -> None:
    def passes() -> Iterator[None]:
        raise RuntimeError("the engine failed")
        yield

    thread = DrafterThread()
    thread.start(passes())
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError):
        thread.start(iter([None]))


N_VOCAB = 12
PROMPT = [3, 1, 4, 1, 5]
DRAW_SECONDS = 0.25
GREEDY = SamplingSettings(temperature=0.0)
Make = Callable[..., "Rig"]


class Rig:
    """A drafter on a table, and what it would draft in turn."""

    def __init__(
        self, context: Any, alone: Any, passes: int | None, ends: frozenset[int], share: float
    ) -> None:
        self.context, self.worker = context, StepwiseWorker(passes)
        made = DraftModel("model", context, n_vocab=N_VOCAB, end_tokens=ends)
        self.drafter = Overlapping(
            made,
            self.worker,
            acceptance=lambda one: [share] * len(one),
            draw_seconds=DRAW_SECONDS,
            always=True,
        )
        self.alone = DraftModel("model", alone, n_vocab=N_VOCAB, end_tokens=ends)
        for drafter in (self.drafter, self.alone):
            drafter.begin(PROMPT, Sampler(GREEDY))

    def in_turn(self, history: Sequence[int], limit: int) -> tuple[int, ...]:
        self.alone.commit(history)
        return self.alone.propose(history, limit).tokens


@pytest.fixture
def rig(table: Callable[..., NDArray[np.float32]], fake_context: Callable[..., Any]) -> Make:
    def make(
        passes: int | None = None,
        *,
        ends: frozenset[int] = frozenset(),
        share: float = 0.8,
        n_ctx: int = 64,
    ) -> Rig:
        rows = table(7, N_VOCAB)
        contexts = fake_context(rows, n_ctx=n_ctx), fake_context(rows, n_ctx=n_ctx)
        return Rig(*contexts, passes, ends, share)

    return make


def likeliest(rig: Rig, text: Sequence[int], rank: int = 0) -> int:
    return int(np.argsort(-rig.context.row(text))[rank])


def test_a_draft_that_was_made_ahead_takes_no_pass(rig: Make) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.commit(history)
    assert one.drafter.backlog(history) == 1
    before = len(one.context.forwards)
    draft = one.drafter.propose(history, 3)
    assert len(one.context.forwards) == before
    assert draft.tokens == one.in_turn(history, 3)
    assert draft.ahead is not None
    assert draft.ahead.is_hit


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("rank", [1, 2])
def test_after_a_rejection_other_likely_tokens_are_reckoned_with(
    rig: Make, kept: int, rank: int
) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    text = [*PROMPT, *drafted[:kept]]
    history = [*text, likeliest(one, text, rank)]
    one.drafter.commit(history)
    draft = one.drafter.propose(history, 3)
    assert draft.tokens == one.in_turn(history, 3)
    assert draft.ahead is not None
    assert draft.ahead.is_hit


def test_another_text_is_drafted_for_as_if_nothing_had_been_made(rig: Make) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, drafted[0], likeliest(one, [*PROMPT, drafted[0]], N_VOCAB - 1)]
    one.drafter.commit(history)
    draft = one.drafter.propose(history, 3)
    assert draft.tokens == one.in_turn(history, 3)
    assert draft.ahead is not None
    assert not draft.ahead.is_hit
    assert draft.ahead.hidden_seconds == 0.0


def test_a_draft_made_in_part_is_gone_on_with(rig: Make) -> None:
    one = rig(2)  # a pass for the row after all of the draft, one for a token
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.commit(history)
    before = len(one.context.forwards)
    assert one.drafter.propose(history, 3).tokens == one.in_turn(history, 3)
    assert len(one.context.forwards) == before + 2


def test_a_draft_made_ahead_is_used_once(rig: Make) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.commit(history)
    one.worker.passes = 0
    first = one.drafter.propose(history, 3)
    before = len(one.context.forwards)
    second = one.drafter.propose(history, 3)
    assert len(one.context.forwards) > before
    assert second.tokens == first.tokens
    assert second.ahead == Ahead(0)


def test_another_reply_uses_nothing_of_the_one_before(rig: Make) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.begin(history, Sampler(GREEDY))
    one.drafter.commit(history)
    before = len(one.context.forwards)
    assert one.drafter.propose(history, 3).ahead is None
    assert len(one.context.forwards) > before


def test_what_ends_the_reply_is_not_drafted_for(rig: Make) -> None:
    known = rig()
    drafted = known.drafter.propose(PROMPT, 3).tokens
    bonus = likeliest(known, [*PROMPT, *drafted])
    one = rig(2, ends=frozenset({bonus}))
    assert one.drafter.propose(PROMPT, 3).tokens == drafted
    history = [*PROMPT, *drafted, bonus]
    one.drafter.commit(history)
    assert one.drafter._predrafts is not None
    assert one.drafter._key(history) not in one.drafter._predrafts
    assert len(one.drafter._predrafts) == 1, "the time went to the next likeliest outcome"


def test_at_the_end_of_its_context_it_drafts_less_ahead(rig: Make) -> None:
    one = rig(n_ctx=len(PROMPT) + 5)
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.commit(history)
    draft = one.drafter.propose(history, 3)
    assert len(draft) == 1
    one.drafter.commit([*history, *draft.tokens])
    assert one.drafter.refusal([*history, *draft.tokens])
    assert not one.drafter.propose([*history, *draft.tokens], 3).tokens


def test_a_seed_draws_what_it_draws_in_turn_where_nothing_was_made_ahead(
    table: Callable[..., NDArray[np.float32]], fake_context: Callable[..., Any]
) -> None:
    """Numbers of drafts made ahead are their own."""
    rows = table(7, N_VOCAB)
    drawn: list[list[tuple[int, ...]]] = []
    for passes in (0, None):
        model = DraftModel("model", fake_context(rows), n_vocab=N_VOCAB)
        drafter = Overlapping(model, StepwiseWorker(passes), always=True)
        drafter.begin(PROMPT, Sampler(SamplingSettings(seed=5)))
        history, drafts = list(PROMPT), list[tuple[int, ...]]()
        for _ in range(6):
            drafter.commit(history)
            drafts.append(drafter.propose(history, 2).tokens)
            history += [N_VOCAB - 1, N_VOCAB - 1, 0, 0]  # no outcome of the draft before
        drawn.append(drafts)
    assert drawn[0] == drawn[1]


def failing(rig: Rig) -> None:
    """Let the next pass fail."""

    def forward(tokens: Sequence[int], n_logits: int) -> None:
        raise RuntimeError("the engine failed")

    rig.context.forward = forward


@pytest.mark.parametrize("call", ["commit", "begin", "backlog", "propose", "rest"])
def test_a_fault_in_a_pass_made_ahead_drops_the_drafter(rig: Make, call: str) -> None:
    one = rig()
    managed = ManagedDrafter(one.drafter)
    managed.propose(PROMPT, 3, N_VOCAB)
    failing(one)
    calls: dict[str, Callable[[], object]] = {
        "commit": lambda: managed.commit(PROMPT),
        "begin": lambda: managed.guarded(lambda: one.drafter.begin(PROMPT, Sampler(GREEDY)), None),
        "backlog": lambda: managed.guarded(lambda: one.drafter.backlog(PROMPT), 0),
        "propose": lambda: managed.propose(PROMPT, 3, N_VOCAB),
        "rest": lambda: managed.guarded(one.drafter.rest, None),
    }
    calls[call]()
    assert managed.dropped == "it failed: the engine failed"


def test_a_drafter_that_is_dropped_for_its_draft_works_no_more(rig: Make) -> None:
    one = rig()
    managed = ManagedDrafter(one.drafter)
    managed.propose(PROMPT, 3, N_VOCAB)
    passes = one.worker.done
    managed.drop("it proposed nonsense")
    assert one.worker._waiting is None
    assert one.worker.done >= passes
    one.drafter.close()
    assert one.worker.is_closed


@pytest.mark.parametrize(("passes", "limit", "used"), [(4, 2, 2), (2, 3, 1), (1, 3, 0)])
def test_hidden_time_is_what_the_used_tokens_would_have_taken_in_turn(
    rig: Make, passes: int, limit: int, used: int
) -> None:
    """Not what they took meanwhile, when both compete for memory. The first pass drafts none."""
    one = rig(passes, share=0.9)
    drafted = one.drafter.propose(PROMPT, 3).tokens
    text = [*PROMPT, *drafted]
    history = [*text, likeliest(one, text)]
    one.drafter.commit(history)
    ahead = one.drafter.propose(history, limit).ahead
    assert ahead == Ahead(int(used > 0), is_hit=used > 0, hidden_seconds=used * DRAW_SECONDS)


def test_no_two_streams_of_drafts_made_ahead_have_the_same_numbers() -> None:
    """Two drafters of a reply, or one after another, must not draft by each other's numbers."""
    sampler = Sampler(SamplingSettings(seed=5))
    streams = [sampler.ahead(), sampler.ahead(), sampler.ahead().ahead()]
    drawn = [tuple(one.drafting.random(4)) for one in (sampler, *streams)]
    assert len({*drawn, tuple(sampler.verification.random(4))}) == 5
    first = np.random.SeedSequence(5).spawn(3)[2]
    assert drawn[1] == tuple(np.random.default_rng(first).random(4)), "answers change by no update"
    again = Sampler(SamplingSettings(seed=5))
    assert [tuple(again.ahead().drafting.random(4)) for _ in range(2)] == drawn[1:3]


class Given(IdleDrafter):
    """Keeps the sampler that it is given."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.sampler = sampler


def test_no_numbers_are_drafted_by_twice_at_another_temperature() -> None:
    """A vote's members and a tree at temperature 0 draft at one of their own."""
    sampler, voter = Sampler(SamplingSettings(seed=5)), Given()
    Vote("vote", [voter]).begin(PROMPT, sampler)
    others = [sampler, voter.sampler, sampler.ahead(), voter.sampler.ahead()]
    drawn = [tuple(one.drafting.random(4)) for one in others]
    assert len(set(drawn)) == len(drawn)
    assert voter.sampler.settings.temperature == 0.0 < sampler.settings.temperature


def test_a_drafter_that_begins_again_in_mid_answer_drafts_ahead_by_new_numbers(
    table: Callable[..., NDArray[np.float32]], fake_context: Callable[..., Any]
) -> None:
    sampler, rows = Sampler(SamplingSettings(seed=5)), np.zeros_like(table(7, N_VOCAB))
    drawn: list[list[tuple[int, ...]]] = []
    for _ in range(2):
        model = DraftModel("model", fake_context(rows), n_vocab=N_VOCAB)
        worker = StepwiseWorker()
        one = Overlapping(model, worker, acceptance=lambda _: [0.8] * 4, always=True)
        one.begin(PROMPT, sampler)
        one.propose(PROMPT, 4)
        one.rest()
        assert one._predrafts is not None
        drawn.append([tuple(made.draft.tokens) for made in one._predrafts.values()])
    assert drawn[0] != drawn[1]


def test_a_round_before_the_last_step_counts_neither_as_hit_nor_as_miss(rig: Make) -> None:
    one = rig()
    drafted = one.drafter.propose(PROMPT, 3).tokens
    history = [*PROMPT, *drafted, likeliest(one, [*PROMPT, *drafted])]
    one.drafter.commit(history)
    history.append(1)
    one.drafter.commit(history)  # that step drafted nothing, or another drafter did
    draft = one.drafter.propose(history, 3)
    assert draft.ahead is None
    assert draft.tokens == one.in_turn(history, 3)
    history.append(2)
    one.drafter.commit(history)
    assert one.drafter.propose(history, 3).ahead is not None


@pytest.mark.parametrize(("ahead", "pays"), [(0.9, True), (1.1, False)])
def test_it_drafts_ahead_while_rounds_are_quicker_for_it(ahead: float, *, pays: bool) -> None:
    """Both ways are tried anew now and then, so that a change of either is noticed."""
    worth, rounds = overlapping._Worth(), list[bool]()
    for number in range(4 * overlapping._PERIOD):
        rounds.append(worth.is_next_ahead())
        quicker = 2.0 if number >= 2 * overlapping._PERIOD else 1.0  # both, by another load
        worth.add(4, (ahead if rounds[-1] else 1.0) / quicker, is_ahead=rounds[-1])
    tried = 4 * overlapping._TRIED
    assert (len(rounds) - tried == sum(rounds)) if pays else (0 < sum(rounds) <= tried // 2)


def test_drafting_ahead_that_begins_to_pay_is_taken_up() -> None:
    worth, rounds = overlapping._Worth(), list[bool]()
    for number in range(3 * overlapping._PERIOD):
        rounds.append(worth.is_next_ahead())
        seconds = (1.2 if number < overlapping._PERIOD else 0.8) if rounds[-1] else 1.0
        worth.add(4, seconds, is_ahead=rounds[-1])
    assert not any(rounds[2 * overlapping._TRIED : overlapping._PERIOD])
    assert all(rounds[2 * overlapping._PERIOD + overlapping._TRIED :])
