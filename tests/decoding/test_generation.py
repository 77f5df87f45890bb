"""The loop on a backend of numbers: exact for every drafter, and its cache always in step.

Sampled replies are compared with the target's law by chi-square tests. Their seeds are fixed, and
each would reject a right program with probability FALSE_ALARM; a wrong rule is seen.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.base import ModelError, PromptTooLongError
from decoding.checks.distribution_check import exact_distribution, p_value
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine, SampledLine
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Event, Finish, FinishReason, Prefill, Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import Distribution, SamplingSettings, point_mass, uniform, warp
from decoding.sampling.sampler import Sampler
from decoding.telemetry import Statistics
from decoding.text import TextStream
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, Verdict
from tests.fixtures.chance import chance
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.first_hit import FirstHit
from tests.fixtures.forms import certain, certain_tree, distributions_in
from tests.fixtures.pieces import Pieces

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Table = NDArray[np.float32]
MakeTable = Callable[..., Table]
Open = Callable[..., "FakeContext"]

N_VOCAB = 6
LONGEST_DRAFT = 8
FALSE_ALARM = 1e-4
GREEDY = SamplingSettings(temperature=0.0)
NO_END: frozenset[int] = frozenset()

common = hypothesis_settings(max_examples=60)
seeds = st.integers(0, 2**32)
prompts = st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=20)
depths = st.none() | st.integers(1, 7)
"""How far the target's context can go back; None for any length."""


class Scripted(IdleDrafter):
    """Proposes given continuations of the prompt, whatever the model said."""

    name = "scripted"
    is_free = True

    def __init__(self, drafts: Sequence[Sequence[int]]) -> None:
        self._drafts = iter(drafts)
        self.begun = 0
        self.limits: list[int] = []

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.begun += 1

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.limits.append(limit)
        tokens = tuple(next(self._drafts, ()))[:limit]
        return certain(tokens, self.name, 1.0) if tokens else NO_DRAFT


class Adversary(IdleDrafter):
    """Proposes at random: any length, right or wrong, drawn from any distribution or certain."""

    name = "adversary"
    is_free = False

    def __init__(self, seed: int, right: Callable[[Sequence[int]], int]) -> None:
        self._generator = np.random.default_rng(seed)
        self._right = right

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        generator = self._generator
        drawn = generator.random() < 0.5
        text = list(history)
        laws: list[Distribution] = []
        for _ in range(int(generator.integers(0, min(limit, LONGEST_DRAFT) + 1))):
            if generator.random() < 0.7:
                laws.append(point_mass(self._right(text)))
            else:
                weights = generator.dirichlet(np.full(N_VOCAB, 0.5))
                laws.append(Distribution(np.arange(N_VOCAB), weights))
            text.append(laws[-1].draw(uniform(generator)))
        tokens = tuple(text[len(history) :])
        count = len(tokens)
        form = SampledLine(tokens, tuple(laws)) if drawn else PointMassLine(tokens)
        return Draft(form, self.name, (0.5,) * count, (0,) * count)


@dataclass(frozen=True)
class Setting:
    """A target with drafters for it."""

    table: Table
    open: Open
    seed: int

    def context(self, **options: int | bool | None) -> "FakeContext":
        return self.open(self.table, **options)

    def drafter_context(self, **options: int) -> "FakeContext":
        """A worse model; its vocabulary is padded, and it likes the padding best."""
        noise = np.random.default_rng(self.seed + 1).normal(scale=1.0, size=self.table.shape)
        padding = np.full((*self.table.shape[:-1], 3), 50.0)
        worse = np.concatenate([self.table + noise, padding], axis=-1)
        return self.open(worse.astype(np.float32), **options)

    def best(self, text: Sequence[int]) -> int:
        return int(self.context().row(text).argmax())

    def model(self, **options: int) -> DraftModel:
        return DraftModel("model", self.drafter_context(**options), n_vocab=N_VOCAB)

    def cascade(self, **options: int) -> Cascade:
        """Prompt lookup under the worse model."""
        context, below = self.drafter_context(**options), controlled(PromptLookup(min_match=1))
        return Cascade("cascade", context, below, below.costs, n_vocab=N_VOCAB, max_draft=3)

    def drafters(self) -> Iterator[Drafter]:
        yield PromptLookup(min_match=2)
        yield self.model()
        yield self.model(n_ctx=20, n_chunk=3)
        yield self.model(depth=2)
        yield FirstHit([PromptLookup(), self.model()])
        yield controlled(PromptLookup(), self.model())
        yield self.cascade()
        yield self.cascade(depth=2)
        yield Vote("vote", [PromptLookup(), self.model(depth=3), self.cascade()])
        yield Adversary(self.seed, self.best)


@pytest.fixture(scope="session")
def setting(table: MakeTable, fake_context: Open) -> Callable[[int], Setting]:
    """Makes a target and its drafters of a seed."""
    return lambda seed: Setting(table(seed, N_VOCAB), fake_context, seed)


def steps_of(events: Sequence[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def tokens_of(events: Sequence[Event]) -> list[int]:
    return [token for step in steps_of(events) for token in step.tokens]


def reason_of(events: Sequence[Event]) -> FinishReason:
    assert sum(isinstance(event, Finish) for event in events) == 1
    assert isinstance(events[-1], Finish)
    return events[-1].reason


def checked(context: "FakeContext", prompt: Sequence[int], events: Iterator[Event]) -> list[Event]:
    """All events; after each step the cache holds what was said, but for the last token.

    A drafted token that ends the reply was computed on the way and may stay.
    """
    seen: list[Event] = []
    history = list(prompt)
    for event in events:
        seen.append(event)
        if isinstance(event, Step):
            history += event.tokens
            whole = event.accepted == len(event.tokens)
            assert list(context.tokens) == (history if whole else history[:-1])
            assert 0 <= event.accepted <= event.drafted
            assert len(event.provenance) == len(event.tokens)
    return seen


def greedy_reply(
    setting: Setting, prompt: Sequence[int], max_tokens: int, end_tokens: frozenset[int] = NO_END
) -> list[int]:
    """Plain decoding, without the loop under test."""
    text = list(prompt)
    while len(text) < len(prompt) + max_tokens:
        text.append(setting.best(text))
        if text[-1] in end_tokens:
            break
    return text[len(prompt) :]


@pytest.mark.slow
@common
@given(seeds, prompts, st.integers(1, 40), st.sets(st.integers(0, N_VOCAB - 1), max_size=1), depths)
def test_greedy_replies_are_those_of_plain_decoding_with_every_drafter(
    setting: Callable[[int], Setting],
    seed: int,
    prompt: list[int],
    max_tokens: int,
    ends: set[int],
    depth: int | None,
) -> None:
    one = setting(seed)
    end_tokens = frozenset(ends)
    limits = Limits(max_tokens, end_tokens)
    expected = greedy_reply(one, prompt, max_tokens, end_tokens)
    stopped = bool(expected) and expected[-1] in end_tokens
    for drafter in (None, *one.drafters()):
        context = one.context(depth=depth)
        events = checked(
            context, prompt, generate(context, prompt, GREEDY, limits, drafters=always(drafter))
        )
        assert tokens_of(events) == expected
        assert all(step.drafted <= context.max_rollback for step in steps_of(events))
        assert reason_of(events) is (FinishReason.STOP if stopped else FinishReason.LENGTH)


@pytest.mark.slow
@common
@given(seeds, prompts, seeds, depths)
def test_sampled_replies_keep_the_cache_in_step_with_every_drafter(
    setting: Callable[[int], Setting],
    seed: int,
    prompt: list[int],
    draw_seed: int,
    depth: int | None,
) -> None:
    one = setting(seed)
    settings = SamplingSettings(1.0, 4, 0.95, 0.01, repeat_penalty=1.1, seed=draw_seed)
    for drafter in one.drafters():
        context = one.context(depth=depth)
        events = generate(
            context, prompt, settings, Limits(25, frozenset([0])), drafters=always(drafter)
        )
        tokens = tokens_of(checked(context, prompt, events))
        assert len(tokens) == 25 or tokens[-1] == 0
        assert 0 not in tokens[:-1]


@common
@given(seeds, prompts, st.integers(1, 12))
def test_a_full_context_ends_the_reply_after_its_last_token(
    setting: Callable[[int], Setting], seed: int, prompt: list[int], room: int
) -> None:
    one = setting(seed)
    expected = greedy_reply(one, prompt, room + 1)
    for drafter in (None, *one.drafters()):
        context = one.context(n_ctx=len(prompt) + room)
        reply = generate(context, prompt, GREEDY, Limits(1000, NO_END), drafters=always(drafter))
        events = checked(context, prompt, reply)
        assert reason_of(events) is FinishReason.CONTEXT
        assert tokens_of(events) == expected
        assert context.length == context.n_ctx


@pytest.mark.parametrize("excess", [0, 1, 5])
def test_a_prompt_that_leaves_no_room_is_refused(
    setting: Callable[[int], Setting], excess: int
) -> None:
    context = setting(0).context(n_ctx=10)
    with pytest.raises(PromptTooLongError) as caught:
        next(generate(context, [1] * (10 + excess), GREEDY, Limits(5, NO_END)))
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (10 + excess, 10)
    assert context.forwards == []


def test_an_end_token_inside_a_draft_ends_the_reply_there(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(15)
    text = greedy_reply(one, [1, 2], 8)
    first = 3
    end = text[first]
    assert end not in text[:first], "another seed is needed"
    context = one.context()
    drafter = Scripted([text[1:8]])
    limits = Limits(100, frozenset([end]))
    events = checked(
        context, [1, 2], generate(context, [1, 2], GREEDY, limits, drafters=always(drafter))
    )
    assert tokens_of(events) == text[: first + 1]
    assert reason_of(events) is FinishReason.STOP
    assert list(context.tokens) == [1, 2, *text[: first + 1]]
    last = steps_of(events)[-1]
    assert (last.drafted, last.accepted) == (7, first)
    assert last.provenance == ("scripted",) * first


class Knowing(IdleDrafter):
    """Proposes what the model will say, beyond whatever ends its reply; a wrong token now and then.

    count: of the tokens proposed at once.
    """

    name = "knowing"
    is_free = True

    def __init__(self, text: Sequence[int], count: int) -> None:
        self._text = text
        self._count = count

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = [*self._text[len(history) :][: min(self._count, limit)]]
        if len(history) % 5 == 0 and tokens:
            tokens[-1] = (tokens[-1] + 1) % N_VOCAB
        return certain(tuple(tokens), self.name, 1.0) if tokens else NO_DRAFT


@common
@given(seeds, prompts, st.lists(st.text("abcdef", min_size=1, max_size=4), max_size=3))
def test_a_stop_text_ends_the_reply_with_its_token_however_much_was_drafted(
    setting: Callable[[int], Setting], seed: int, prompt: list[int], stops: list[str]
) -> None:
    """The same tokens, text and counts as without drafts; a piece may have two letters."""
    one, tokenizer = setting(seed), Pieces([b"a", b"b", b"c", b"d", b"e", b"fa"])
    whole = greedy_reply(one, prompt, 16)
    letters = [tokenizer.text(whole[:count]).decode() for count in range(1, 17)]
    ended = next((at for at, text in enumerate(letters, 1) if any(s in text for s in stops)), None)
    expected = whole[:ended]
    begun = min([len(letters[-1]), *(at for s in stops if (at := letters[-1].find(s)) >= 0)])
    for count in (0, 1, 3, 15):
        text, statistics, context = (
            TextStream(tokenizer, tuple(stops)),
            Statistics(0.0),
            one.context(),
        )
        limits, drafter = Limits(16, NO_END, text), Knowing([*prompt, *whole, 0, 1, 2], count)
        replied = generate(context, prompt, GREEDY, limits, drafters=always(drafter))
        events = checked(context, prompt, replied)
        text.finish()
        for event in events:
            statistics.add(event)
        provenance = [origin for step in steps_of(events) for origin in step.provenance]
        assert tokens_of(events) == expected
        assert text.text == letters[-1][:begun]
        assert reason_of(events) is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert statistics.completion_tokens == len(text.ends) == len(provenance) == len(expected)
        assert statistics.accepted == provenance.count("knowing")


def test_an_end_token_of_the_models_own_ends_the_reply(setting: Callable[[int], Setting]) -> None:
    one = setting(3)
    text = greedy_reply(one, [1, 2], 8)
    events = list(generate(one.context(), [1, 2], GREEDY, Limits(8, frozenset([text[0]]))))
    assert (tokens_of(events), reason_of(events)) == (text[:1], FinishReason.STOP)


def test_an_end_token_at_the_limit_counts_as_a_stop(setting: Callable[[int], Setting]) -> None:
    one = setting(3)
    text = greedy_reply(one, [1, 2], 1)
    events = list(generate(one.context(), [1, 2], GREEDY, Limits(1, frozenset(text))))
    assert reason_of(events) is FinishReason.STOP


def test_a_draft_leaves_room_for_the_models_own_token(setting: Callable[[int], Setting]) -> None:
    drafter = Scripted([])
    list(generate(setting(0).context(), [1], GREEDY, Limits(4, NO_END), drafters=always(drafter)))
    assert drafter.limits == [2, 1]


def test_provenance_tells_drafted_corrected_bonus_and_plain_tokens(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(5)
    text = greedy_reply(one, [1, 2], 8)
    wrong = (text[5] + 1) % N_VOCAB
    drafter = Scripted([text[1:3], [text[4], wrong, text[6]], []])
    events = list(
        generate(one.context(), [1, 2], GREEDY, Limits(8, NO_END), drafters=always(drafter))
    )
    assert tokens_of(events) == text[:8]
    assert [step.provenance for step in steps_of(events)] == [
        ("model",),
        ("scripted", "scripted", "bonus"),
        ("scripted", "corrected"),
        ("model",),
        ("model",),
    ]
    counts = [(step.drafted, step.accepted) for step in steps_of(events)]
    assert counts == [(0, 0), (2, 2), (3, 1), (0, 0), (0, 0)]


def test_the_first_step_drafts_nothing(setting: Callable[[int], Setting]) -> None:
    one = setting(1)
    drafter = Scripted([[1, 2, 3]])
    events = generate(one.context(), [1, 2], GREEDY, Limits(9, NO_END), drafters=always(drafter))
    first = next(event for event in events if isinstance(event, Step))
    assert (first.drafted, len(first.tokens), drafter.limits) == (0, 1, [])


def test_prefill_goes_in_chunks_and_tells_its_progress(setting: Callable[[int], Setting]) -> None:
    context = setting(1).context(n_chunk=4)
    events = list(generate(context, [1, 2, 3, 4, 5] * 2, GREEDY, Limits(1, NO_END)))
    prefills = [event for event in events if isinstance(event, Prefill)]
    assert [(event.done, event.total, event.cached) for event in prefills] == [
        (4, 10, 0),
        (8, 10, 0),
        (10, 10, 0),
    ]
    assert context.forwards == [4, 4, 2]


def test_cancelling_during_the_prompt_says_nothing(setting: Callable[[int], Setting]) -> None:
    one = setting(1)
    context = one.context(n_chunk=4)
    reply = generate(
        context,
        [1, 2, 3, 4, 5] * 2,
        GREEDY,
        Limits(9, NO_END),
        is_cancelled=lambda: context.length >= 8,
    )
    events = list(reply)
    assert [type(event) for event in events] == [Prefill, Prefill, Finish]
    assert reason_of(events) is FinishReason.CANCELLED
    again = list(generate(context, [1, 2, 3, 4, 5] * 2, GREEDY, Limits(3, NO_END)))
    assert tokens_of(again) == greedy_reply(one, [1, 2, 3, 4, 5] * 2, 3)
    assert isinstance(again[0], Prefill)
    assert again[0].cached == 8


class SlowReader(Scripted):
    """Reads the prompt in many chunks."""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        yield from range(100)


def test_cancelling_while_the_drafter_reads_the_prompt(setting: Callable[[int], Setting]) -> None:
    checks = iter([False] * 3)
    reply = generate(
        setting(1).context(),
        [1, 2, 3],
        GREEDY,
        Limits(9, NO_END),
        drafters=always(SlowReader([])),
        is_cancelled=lambda: next(checks, True),
    )
    events = list(reply)
    assert [type(event) for event in events] == [Prefill] * 4 + [Finish]
    assert reason_of(events) is FinishReason.CANCELLED


def test_cancelling_between_steps_keeps_what_was_said(setting: Callable[[int], Setting]) -> None:
    one = setting(1)
    context = one.context()
    reply = generate(
        context, [1, 2], GREEDY, Limits(9, NO_END), is_cancelled=lambda: context.length >= 4
    )
    events = checked(context, [1, 2], reply)
    assert tokens_of(events) == greedy_reply(one, [1, 2], 3)
    assert reason_of(events) is FinishReason.CANCELLED


def test_a_reply_left_alone_midway_leaves_a_context_to_go_on_with(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(2)
    context = one.context()
    reply = generate(context, [1, 2], GREEDY, Limits(30, NO_END), drafters=always(one.model()))
    for event in reply:
        if isinstance(event, Step) and event.drafted:
            break
    assert isinstance(reply, Generator)
    reply.close()
    events = checked(context, [4, 5], generate(context, [4, 5], GREEDY, Limits(9, NO_END)))
    assert tokens_of(events) == greedy_reply(one, [4, 5], 9)


@pytest.mark.parametrize("length", [0, 3])
def test_a_reply_whose_context_somebody_else_ran_ends_rather_than_go_on_from_other_text(
    setting: Callable[[int], Setting], length: int
) -> None:
    one = setting(2)
    context = one.context()
    reply = generate(context, [1, 2], GREEDY, Limits(30, NO_END))
    heard = list(islice(reply, 6))
    context.truncate(length)
    with pytest.raises(ModelError, match="answer was stopped"):
        heard += reply
    assert tokens_of(heard) == greedy_reply(one, [1, 2], 30)[: len(tokens_of(heard))]
    assert len(heard) == 6


def test_a_second_reply_computes_only_what_is_new(setting: Callable[[int], Setting]) -> None:
    one = setting(4)
    context = one.context()
    prompt = [1, 2, 3]
    reply = tokens_of(list(generate(context, prompt, GREEDY, Limits(5, NO_END))))
    context.forwards.clear()
    longer = [*prompt, *reply, 0, 4]
    events = list(
        generate(context, longer, GREEDY, Limits(3, NO_END), drafters=always(one.model()))
    )
    assert isinstance(events[0], Prefill)
    assert (events[0].cached, events[0].done, events[0].total) == (7, 10, 10)
    assert context.forwards[0] == 3
    assert tokens_of(events) == greedy_reply(one, longer, 3)


def test_the_same_prompt_again_computes_its_last_token_only(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(4)
    context = one.context()
    first = tokens_of(list(generate(context, [1, 2, 3, 4], GREEDY, Limits(5, NO_END))))
    context.forwards.clear()
    second = tokens_of(list(generate(context, [1, 2, 3, 4], GREEDY, Limits(5, NO_END))))
    assert second == first
    assert context.forwards == [1] * 5


def test_a_model_that_cannot_roll_back_runs_undrafted(setting: Callable[[int], Setting]) -> None:
    one = setting(4)
    context = one.context(can_roll_back=False)
    drafter = Scripted([[1], [2], [3]])
    events = list(generate(context, [1, 2], GREEDY, Limits(6, NO_END), drafters=always(drafter)))
    assert tokens_of(events) == greedy_reply(one, [1, 2], 6)
    assert (drafter.begun, drafter.limits, context.truncations) == (0, [], 0)


def test_a_model_that_cannot_roll_back_reuses_a_whole_prefix_or_starts_afresh(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(4)
    context = one.context(can_roll_back=False)
    said = tokens_of(list(generate(context, [1, 2], GREEDY, Limits(4, NO_END))))
    for prompt, cached in (([1, 2, *said, 3], 5), ([1, 2, 5], 0)):
        events = list(generate(context, prompt, GREEDY, Limits(4, NO_END)))
        assert isinstance(events[0], Prefill)
        assert events[0].cached == cached
        assert tokens_of(events) == greedy_reply(one, prompt, 4)


def test_a_bounded_context_comes_back_to_where_its_prompt_began_and_nearly_ended(
    setting: Callable[[int], Setting],
) -> None:
    """An edited question goes back to the first, another answer to the second."""
    one = setting(4)
    context = one.context(depth=3, n_ctx=256)
    question = [1, 2, 3, 4, 5] * 20
    said = tokens_of(list(generate(context, question, GREEDY, Limits(4, NO_END))))
    longer = [*question, *said, *question[::-1]]
    for prompt, cached in (
        (question, 84),
        (longer, 103),
        (longer, 188),
        ([*longer[:120], 0], 103),
        ([0, *longer], 0),
    ):
        events = list(generate(context, prompt, GREEDY, Limits(4, NO_END)))
        assert isinstance(events[0], Prefill)
        assert events[0].cached == cached
        assert tokens_of(events) == greedy_reply(one, prompt, 4)


def test_a_draft_model_catches_up_after_full_acceptance(setting: Callable[[int], Setting]) -> None:
    context = setting(0).drafter_context()
    model = DraftModel("model", context, n_vocab=N_VOCAB, max_draft=3)
    history = [1, 2, 3, 4]
    model.begin(history, Sampler(GREEDY))
    draft = model.propose(history, 8)
    assert len(draft) == 3
    assert context.tokens == [*history, *draft.tokens[:2]]
    history += [*draft.tokens, 5]
    context.forwards.clear()
    model.commit(history)
    second = model.propose(history, 8)
    assert context.forwards == [2, 1, 1]
    assert context.tokens == [*history, *second.tokens[:2]]


def test_a_draft_model_forgets_what_was_rejected(setting: Callable[[int], Setting]) -> None:
    one = setting(0)
    context = one.drafter_context()
    model = DraftModel("model", context, n_vocab=N_VOCAB, max_draft=3)
    history = [1, 2, 3, 4]
    model.begin(history, Sampler(GREEDY))
    draft = model.propose(history, 8)
    history += [draft.tokens[0], (draft.tokens[1] + 1) % N_VOCAB]
    context.forwards.clear()
    model.commit(history)
    second = model.propose(history, 1)
    assert context.forwards == [1]
    assert context.tokens == history
    fresh = DraftModel("model", one.drafter_context(), n_vocab=N_VOCAB)
    fresh.begin(history, Sampler(GREEDY))
    assert fresh.propose(history, 1).tokens == second.tokens


def test_a_bounded_draft_model_comes_back_to_the_end_of_the_text(
    setting: Callable[[int], Setting],
) -> None:
    """Its passes over one token each leave nothing to take back."""
    context = setting(0).drafter_context(depth=3)
    model = DraftModel("model", context, n_vocab=N_VOCAB, max_draft=6)
    history = [1, 2, 3, 4]
    model.begin(history, Sampler(GREEDY))
    draft = model.propose(history, 8)
    assert len(draft) == 6
    history += [draft.tokens[0], (draft.tokens[1] + 1) % N_VOCAB]
    context.forwards.clear()
    model.commit(history)
    assert model.backlog(history) == 2
    model.propose(history, 8)
    assert context.forwards == [2, 1, 1, 1, 1, 1]


def test_a_draft_model_left_out_for_some_steps_catches_up(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(0)
    context = one.drafter_context()
    model = DraftModel("model", context, n_vocab=N_VOCAB, max_draft=3)
    history = [1, 2, 3, 4]
    model.begin(history, Sampler(GREEDY))
    draft = model.propose(history, 8)
    history += [(draft.tokens[0] + 1) % N_VOCAB, 5, 0, 2]
    context.forwards.clear()
    model.commit(history)
    second = model.propose(history, 1)
    assert context.forwards == [4]
    assert context.tokens == history
    fresh = one.model()
    fresh.begin(history, Sampler(GREEDY))
    assert fresh.propose(history, 1).tokens == second.tokens


def test_a_draft_model_hands_on_the_law_each_token_was_drawn_from(
    setting: Callable[[int], Setting],
) -> None:
    context = setting(7).drafter_context()
    for seed in range(10):
        model = DraftModel("model", context, n_vocab=N_VOCAB, max_draft=3)
        settings = SamplingSettings(
            0.9, 5, 0.95, 0.02, 1.3, seed, presence_penalty=1.0, logit_bias=((3, 1.5),)
        )
        model.begin([1, 2], Sampler(settings, prompt_tokens=1))
        draft = model.propose([1, 2], 3)
        for i, (token, law) in enumerate(zip(draft.tokens, distributions_in(draft), strict=True)):
            text = [1, 2, *draft.tokens[:i]]
            expected = warp(context.row(text)[:N_VOCAB], settings, text, text[1:])
            assert law.ids.tolist() == expected.ids.tolist()
            assert law.probabilities.tolist() == expected.probabilities.tolist()
            assert draft.confidence[i] == law.of(token) > 0.0


def test_a_draft_model_draws_from_the_drafting_stream_alone(
    setting: Callable[[int], Setting],
) -> None:
    used, untouched = Sampler(SamplingSettings(1.0)), Sampler(SamplingSettings(1.0))
    model = setting(7).model()
    model.begin([1, 2], used)
    model.propose([1, 2], 3)
    assert used.verification.random() == untouched.verification.random()
    assert used.drafting.random() != untouched.drafting.random()


@pytest.mark.parametrize("other", [[4, 5, 3, 3, 4, 5, 1], [1, 2, 0], [5]])
def test_a_draft_model_turns_to_another_conversation(
    setting: Callable[[int], Setting], other: list[int]
) -> None:
    one = setting(0)
    context = one.drafter_context()
    used = DraftModel("model", context, n_vocab=N_VOCAB)
    used.begin([1, 2, 3, 4], Sampler(GREEDY))
    used.propose([1, 2, 3, 4], 3)
    used.begin(other, Sampler(GREEDY))
    fresh = one.model()
    fresh.begin(other, Sampler(GREEDY))
    draft = used.propose(other, 3)
    assert draft.tokens == fresh.propose(other, 3).tokens
    assert context.tokens == [*other, *draft.tokens[:-1]]


def test_a_draft_model_stops_after_an_end_token(setting: Callable[[int], Setting]) -> None:
    one = setting(0)
    free = DraftModel("model", one.drafter_context(), n_vocab=N_VOCAB, max_draft=5)
    free.begin([1, 2], Sampler(GREEDY))
    tokens = free.propose([1, 2], 5).tokens
    model = DraftModel(
        "model",
        one.drafter_context(),
        n_vocab=N_VOCAB,
        end_tokens=frozenset([tokens[1]]),
        max_draft=5,
    )
    model.begin([1, 2], Sampler(GREEDY))
    assert model.propose([1, 2], 5).tokens == tokens[: tokens.index(tokens[1]) + 1]


def test_a_draft_models_padding_is_never_proposed(setting: Callable[[int], Setting]) -> None:
    one = setting(0)
    events = list(
        generate(one.context(), [1, 2], GREEDY, Limits(30, NO_END), drafters=always(one.model()))
    )
    assert max(tokens_of(events)) < N_VOCAB
    assert sum(step.accepted for step in steps_of(events)) > 0


def test_a_draft_model_with_a_smaller_context_falls_silent(
    setting: Callable[[int], Setting],
) -> None:
    one = setting(0)
    reply = generate(
        one.context(), [1, 2], GREEDY, Limits(40, NO_END), drafters=always(one.model(n_ctx=12))
    )
    history, drafted = 2, 0
    for step in steps_of(list(reply)):
        assert history < 12 or step.drafted == 0
        history += len(step.tokens)
        drafted += step.drafted
    assert drafted > 0


def test_times_are_read_from_the_clock(setting: Callable[[int], Setting]) -> None:
    ticks = iter(range(1000))
    reply = generate(
        setting(0).context(),
        [1, 2],
        GREEDY,
        Limits(2, NO_END),
        drafters=always(Scripted([])),
        clock=lambda: float(next(ticks)),
    )
    prefill, first, second, _ = list(reply)
    assert isinstance(prefill, Prefill)
    assert isinstance(first, Step)
    assert isinstance(second, Step)
    assert prefill.seconds == 1.0
    assert (first.at, second.at) == (2.0, 6.0)
    assert (second.draft_seconds, second.verify_seconds) == (1.0, 1.0)
    assert (first.seconds, second.seconds) == (0.0, 3.0)


def controlled(*drafters: Drafter) -> Controller:
    """A controller over drafters where a token more costs next to nothing, so that it drafts."""
    managed = [
        ManagedDrafter(drafter, cost=None if drafter.is_free else DraftCost(0.1, 0.01))
        for drafter in drafters
    ]
    costs = CostModel(Measured({1: 2.0, 16: 2.1}))
    return Controller(managed, costs, N_VOCAB, clock=lambda: 0.0)


def reply_of(
    context: "FakeContext", prompt: Sequence[int], settings: SamplingSettings, drafter: Drafter
) -> tuple[list[int], int]:
    """The tokens of a reply and how many of them were drafted; a pass takes 2 ticks."""
    ticks = iter(range(10_000))
    limits = Limits(60, NO_END)
    events = list(
        generate(
            context,
            prompt,
            settings,
            limits,
            drafters=always(drafter),
            clock=lambda: float(next(ticks)),
        )
    )
    return tokens_of(events), sum(step.accepted for step in steps_of(events))


PENALISED = SamplingSettings(0.8, 4, 0.95, 0.02, repeat_penalty=1.2)


@pytest.mark.parametrize("settings", [SamplingSettings(0.8), PENALISED])
def test_a_seed_gives_the_plain_reply_whatever_prompt_lookup_drafts(
    setting: Callable[[int], Setting], settings: SamplingSettings
) -> None:
    one = setting(21)
    prompt = [1, 2, 3, 4, 1, 2, 3]
    accepted: Counter[str] = Counter()
    for seed in range(12):
        seeded = replace(settings, seed=seed)
        limits = Limits(60, NO_END)
        events = list(generate(one.context(n_ctx=128), prompt, seeded, limits))
        plain = tokens_of(events)
        drafters: dict[str, Drafter] = {
            "alone": PromptLookup(min_match=1),
            "controller": controlled(PromptLookup()),
        }
        for length in (1, 2, 5, 15):
            drafters[f"at most {length}"] = PromptLookup(max_draft=length)
        for name, drafter in drafters.items():
            context = one.context(n_ctx=128)
            tokens, stood = reply_of(context, prompt, seeded, drafter)
            assert tokens == plain, (name, seed)
            accepted[name] += stood
    assert len(accepted) == 6
    assert min(accepted.values()) > 20


def test_seeds_give_different_replies(setting: Callable[[int], Setting]) -> None:
    """Control: were all plain replies alike, the test before would prove nothing."""
    one = setting(21)
    replies = {
        tuple(reply_of(one.context(n_ctx=128), [1, 2, 3], seeded, PromptLookup())[0])
        for seeded in (SamplingSettings(0.8, seed=seed) for seed in range(12))
    }
    assert len(replies) == 12


REPLIES = 2500
SAMPLED = {
    "temperature alone": SamplingSettings(0.8, 0, 1.0, 0.0),
    "every border and a penalty": SamplingSettings(0.9, 4, 0.9, 0.04, repeat_penalty=1.4),
}


def sampled(one: Setting, settings: SamplingSettings, drafter: Drafter) -> float:
    return chance(one.context(), [1, 3, 2, 1, 3], settings, drafter, REPLIES, more=1, accepted=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_replies_with_a_draft_model_follow_the_law_of_the_target(
    setting: Callable[[int], Setting], name: str
) -> None:
    one = setting(11)
    assert sampled(one, SAMPLED[name], one.model()) > FALSE_ALARM


@pytest.mark.parametrize("is_told", [True, False])
def test_with_a_seed_a_reply_that_is_continued_follows_the_law_of_the_target(
    setting: Callable[[int], Setting], is_told: bool
) -> None:
    """What was drawn before tells of the numbers that drew it, if these are used again."""
    one, prompt, settings = setting(11), [1, 3, 2, 1, 3], SAMPLED["temperature alone"]
    context, drawn = one.context(), Counter[tuple[int, ...]]()
    for seed in range(1000):
        said, seeded = list[int](), replace(settings, seed=seed)
        for count in (1, 2):
            text, begun = [*prompt, *said], len(said) if is_told else 0
            events = generate(context, text, seeded, Limits(count, NO_END), begun=begun)
            said += tokens_of(list(events))
        drawn[tuple(said)] += 1
    found = p_value(exact_distribution(context, prompt, settings, 3), drawn)
    assert (found > FALSE_ALARM) == is_told


@pytest.mark.slow
def test_sampled_replies_with_prompt_lookup_follow_the_law_of_the_target(
    setting: Callable[[int], Setting],
) -> None:
    settings = SAMPLED["every border and a penalty"]
    assert sampled(setting(11), settings, PromptLookup(min_match=1)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("make", ["cascade", "vote"])
def test_sampled_replies_with_drafters_made_of_others_follow_the_law_of_the_target(
    setting: Callable[[int], Setting], make: str
) -> None:
    settings = SAMPLED["every border and a penalty"]
    one = setting(11)
    drafters: dict[str, Drafter] = {
        "cascade": one.cascade(),
        "vote": Vote("vote", [PromptLookup(min_match=1), one.model()], max_draft=2),
    }
    assert sampled(one, settings, drafters[make]) > FALSE_ALARM


@pytest.mark.slow
def test_control_the_same_test_rejects_resampling_from_the_target(
    setting: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(target: TargetRows, draft: SampledLine, generator: np.random.Generator) -> Verdict:
        for i, (token, law) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
            p_target, q_draft = target[i].of(token), law.of(token)
            if uniform(generator) * q_draft > p_target:
                return Verdict(i, target[i].draw(uniform(generator)))
        count = len(draft.tokens)
        return Verdict(count, target[count].draw(uniform(generator)))

    monkeypatch.setattr(target_pass, "verify_block", wrong)
    one = setting(11)
    settings = SAMPLED["temperature alone"]
    assert sampled(one, settings, one.model()) < FALSE_ALARM


@pytest.mark.parametrize("draft", [certain((2, 3)), certain_tree((2, 3, 4), (-1, 0, -1)), NO_DRAFT])
def test_what_fills_a_pass_up_changes_nothing_but_its_width(
    table: Callable, fake_context: Callable, draft: Draft
) -> None:
    """Also sampled: the same numbers decide the same tokens."""
    found: list[target_pass.Judged] = []
    for padding in (0, 5):
        context, history = fake_context(table(3)), [0, 1, 5]
        context.forward(history[:-1], 0)
        sampler = Sampler(SamplingSettings(temperature=1.0, seed=4), len(history))
        filled = replace(draft, padding=padding)
        found.append(target_pass.judge(context, history, filled, sampler, lambda: 0.0))
        assert context.forwards[-1] == 1 + len(draft) + padding
        target_pass.settle(context, len(history), found[-1], len(found[-1].accepted))
        assert context.tokens == [*history, *found[-1].accepted]
    assert found[0] == found[1]
