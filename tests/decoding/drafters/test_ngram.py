"""The drafter that learns: from what the model said alone, to its end, and without changing it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from decoding.checks.greedy_check import greedy_reply
from decoding.draft import HostLine
from decoding.drafters.ngram import LONGEST, Ngram, NgramStatistics, Passage
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, Verdict, verify
from tests.fixtures.replied import said

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

MakeTable = Callable[..., NDArray[np.float32]]
Open = Callable[..., "FakeContext"]

SAMPLER = Sampler(SamplingSettings())
PROMPT = [0, 1, 2, 3]


def heard(*replies: Sequence[int]) -> Ngram:
    """A drafter to which a model said replies to an empty prompt, a token at each step."""
    drafter = Ngram()
    for reply in replies:
        drafter.begin([], SAMPLER)
        for end in range(1, len(reply) + 1):
            drafter.commit(reply[:end])
    return drafter


def proposal(drafter: Ngram, history: Sequence[int], limit: int = 100) -> list[int]:
    drafter.begin(history, SAMPLER)
    return list(drafter.propose(history, limit).tokens)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=30))
def test_nothing_learned_means_nothing_proposed(history: list[int]) -> None:
    assert proposal(Ngram(), history) == []


def test_what_the_model_said_is_proposed_in_a_later_reply() -> None:
    drafter = heard([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    assert proposal(drafter, [8, 9, 2, 3], limit=3) == [4, 5, 6]
    assert proposal(drafter, [8, 9, 2, 3], limit=2) == [4, 5]
    assert proposal(drafter, [8, 9, 2, 3], limit=0) == []
    assert proposal(drafter, [8, 9]) == []


def test_the_prompt_is_not_learned() -> None:
    drafter = Ngram()
    prompt = [1, 2, 3] * 5
    assert proposal(drafter, prompt) == []
    drafter.commit([*prompt, 9])
    assert proposal(drafter, prompt) == [9]


def test_a_draft_ends_where_nobody_would_send_it() -> None:
    rng = np.random.default_rng(0)
    drafter = heard(rng.integers(0, 4, 400).tolist())
    drafter.begin([], SAMPLER)
    draft = drafter.propose([1, 2], 100)
    assert 0 < len(draft) < 15
    assert np.prod(draft.confidence) >= 0.05


def test_confidence_and_evidence_come_with_each_token() -> None:
    drafter = heard(*[[1, 2, 3, 4, 5]] * 5)
    drafter.begin([], SAMPLER)
    draft = drafter.propose([1, 2], 3)
    assert draft.tokens == (3, 4, 5)
    assert len(draft.confidence) == len(draft.evidence) == 3
    assert all(0.0 < one < 1.0 for one in draft.confidence)
    assert not draft.is_sampled


def test_a_forgetful_one_begins_each_reply_with_nothing() -> None:
    drafter = heard([1, 2, 3, 4] * 3)
    drafter.heard()
    drafter.is_forgetful = True
    for _ in range(2):
        assert proposal(drafter, [1, 2]) == []
        drafter.commit([1, 2, *[9, 1, 2] * 6])
        assert drafter.propose([1, 2], 1).tokens == (9,)
    assert drafter.heard() == []
    drafter.is_forgetful = False
    assert proposal(drafter, [1, 2], limit=1) == [3]


def test_what_was_heard_is_handed_over_once_and_teaches_the_same() -> None:
    drafter = heard([1, 2, 3, 4, 5] * 4)
    copy = NgramStatistics()
    for passage in drafter.heard():
        copy.learn(passage)
    assert drafter.heard() == []
    assert copy.guess([4, 5, 1]) == drafter._statistics.guess([4, 5, 1]) is not None


def own(passages: Sequence[Passage]) -> list[int]:
    return [token for passage in passages for token in passage.tokens[passage.start :]]


def test_a_reply_is_learned_to_its_last_token(table: MakeTable, fake_context: Open) -> None:
    drafter = Ngram()
    context = fake_context(table(1))
    for seed in range(5):
        drafting = SamplingSettings(temperature=1.0, seed=seed)
        events = generate(
            context, PROMPT, drafting, Limits(9, frozenset()), drafters=always(drafter)
        )
        steps = [event for event in events if isinstance(event, Step)]
        assert own(drafter.heard()) == said(steps)


def test_a_passage_begins_with_what_stood_before_it() -> None:
    drafter = Ngram()
    history = list(range(20))
    drafter.begin(history, SAMPLER)
    drafter.commit([*history, 5, 6])
    assert drafter.heard() == [Passage([*history[-LONGEST:], 5, 6], LONGEST)]


def test_greedy_tokens_are_those_of_plain_decoding(table: MakeTable, fake_context: Open) -> None:
    drafter, drafted, accepted = Ngram(), 0, 0
    for seed in range(20):
        context = fake_context(table(seed, scale=1.0), n_ctx=80)
        limits = Limits(60, frozenset())
        plain = said(greedy_reply(context, PROMPT, limits, None))
        steps = list(greedy_reply(context, PROMPT, limits, drafter))
        assert said(steps) == plain
        drafted += sum(step.drafted for step in steps)
        accepted += sum(step.accepted for step in steps)
    assert 0 < accepted < drafted


def sampled(context: "FakeContext", seed: int, drafter: Ngram | None) -> tuple[list[int], int]:
    """A reply at temperature 1, and how many tokens were drafted."""
    settings = SamplingSettings(1.0, top_k=0, top_p=0.95, min_p=0.0, repeat_penalty=1.2, seed=seed)
    events = generate(context, PROMPT, settings, Limits(40, frozenset()), drafters=always(drafter))
    steps = [event for event in events if isinstance(event, Step)]
    return said(steps), sum(step.drafted for step in steps)


def same_replies(context: "FakeContext") -> list[bool]:
    """Whether each sampled reply is that of plain decoding, while the drafter learns from all."""
    drafter, drafted = Ngram(), 0
    found: list[bool] = []
    for seed in range(100):
        reply, tokens = sampled(context, seed, drafter)
        found.append(reply == sampled(context, seed, None)[0])
        drafted += tokens
    assert drafted > 1000
    return found


@pytest.mark.slow
def test_a_seed_gives_the_reply_of_plain_decoding(table: MakeTable, fake_context: Open) -> None:
    assert all(same_replies(fake_context(table(3, scale=1.0))))


@pytest.mark.slow
def test_the_test_sees_a_wrong_rule(
    table: MakeTable, fake_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: whoever draws once more after a rejection accepts too often."""

    def twice(target: TargetRows, draft: HostLine, generator: np.random.Generator) -> Verdict:
        found = verify(target, draft, generator)
        return found if found.accepted == len(draft.tokens) else verify(target, draft, generator)

    monkeypatch.setattr(target_pass, "verify", twice)
    assert not all(same_replies(fake_context(table(3, scale=1.0))))
