"""The drafter that learns: from what the model said alone, to its end, and without changing it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from decoding.checks.distribution_check import greedy_reply
from decoding.draft import HostLine
from decoding.drafters.ngram import (
    LONGEST,
    N_BYTES,
    ORDERS,
    SLOTS,
    Ngram,
    NgramStatistics,
    NgramTable,
    Passage,
    state_of,
    token_of,
)
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


common = settings(max_examples=60)
texts = st.lists(st.integers(0, 5), max_size=40)


def taught(*texts: list[int]) -> NgramStatistics:
    statistics = NgramStatistics()
    for text in texts:
        statistics.learn(Passage(text, 0))
    return statistics


@common
@given(texts, texts)
def test_a_guess_followed_the_longest_end_that_was_said_before(
    said: list[int], text: list[int]
) -> None:
    guess = taught(said).guess(text)
    followers = {
        order: {
            said[i]
            for i in range(order, len(said))
            if len(text) >= order and said[i - order : i] == text[len(text) - order :]
        }
        for order in ORDERS
    }
    known = [order for order in ORDERS if followers[order]]
    if guess is None:
        assert not known
    else:
        assert guess.order == known[-1]
        assert guess.token in followers[guess.order]
        assert 0.0 < guess.confidence < 1.0


@common
@given(texts, texts)
def test_the_order_of_passages_of_their_own_words_does_not_matter(
    first: list[int], second: list[int]
) -> None:
    """Two programs that save one after the other: where they speak of other things, either way."""
    other = [token + 10 for token in second]
    ours, theirs = taught(first, other).table.contents, taught(other, first).table.contents
    assert ours.slots.tolist() == theirs.slots.tolist()
    assert ours.entries["word"].tolist() == theirs.entries["word"].tolist()


def test_whichever_passage_came_last_guesses_are_right_as_often() -> None:
    passages = [speech(seed, 3000) for seed in (1, 2)]
    text = speech(3, 2000)
    ours, theirs = (_right(taught(*order), text) for order in (passages, passages[::-1]))
    assert ours > 0.15
    assert ours == pytest.approx(theirs, abs=0.03)


def _right(statistics: NgramStatistics, text: list[int]) -> float:
    """The share of tokens that are guessed."""
    guesses = (statistics.guess(text[:end]) for end in range(1, len(text)))
    pairs = zip(guesses, text[1:], strict=True)
    return float(np.mean([guess is not None and guess.token == token for guess, token in pairs]))


def speech(seed: int, count: int, n_vocab: int = 300) -> list[int]:
    """Draws of one law: each token depends on the two before it, some ends are nearly certain."""
    habits = np.random.default_rng(0)
    sharpness = habits.gamma(0.7, 1.2, size=(n_vocab, 16))
    rng = np.random.default_rng(seed)
    text = [1, 2]
    for _ in range(count):
        before, last = text[-2:]
        shares = sharpness[(before * 31 + last * 17) % n_vocab] ** 3
        chosen = rng.choice(16, p=shares / shares.sum())
        text.append(int((before * 13 + last * 7 + chosen * chosen * 5) % n_vocab))
    return text


def reliability(
    statistics: NgramStatistics, text: list[int]
) -> dict[int, list[tuple[float, bool]]]:
    """Confidence and whether it was right, by tenths of confidence, on a text not learned yet."""
    found: dict[int, list[tuple[float, bool]]] = {}
    for end in range(LONGEST, len(text)):
        guess = statistics.guess(text[end - LONGEST : end])
        if guess is not None:
            judged = (guess.confidence, guess.token == text[end])
            found.setdefault(int(guess.confidence * 10), []).append(judged)
    return found


def worst_error(found: dict[int, list[tuple[float, bool]]]) -> float:
    """The largest gap between confidence and share of right guesses, of tenths seen often."""
    often = [np.array(judged) for judged in found.values() if len(judged) >= 150]
    assert len(often) >= 4, "too few kinds to tell anything"
    return max(abs(judged[:, 0].mean() - judged[:, 1].mean()) for judged in often)


def test_confidence_holds_on_text_it_has_not_seen() -> None:
    """150 guesses or more in a tenth: 0.1 is more than two standard errors; the seeds are fixed."""
    statistics = taught(speech(1, 8000))
    assert worst_error(reliability(statistics, speech(2, 4000))) < 0.1


def test_the_share_of_right_guesses_of_an_entry_would_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: counts of a context alone promise too much."""

    def share(self: NgramStatistics, kind: int) -> float:
        right, wrong = kind >> 3 & 7, kind & 7
        return min(right / (right + wrong), 0.999)

    statistics = taught(speech(1, 8000))
    monkeypatch.setattr(NgramStatistics, "_confidence", share)
    assert worst_error(reliability(statistics, speech(2, 4000))) > 0.2


WAYS = 4
EPOCH = 1 << 15
fewer = settings(max_examples=50)
keys = st.integers(0, 2**64 - 1)
tokens = st.integers(0, 300_000)
pairs = st.lists(st.tuples(keys, tokens), max_size=60)


def learned(found: Sequence[tuple[int, int]]) -> NgramTable:
    table = NgramTable()
    for key, token in found:
        table.learn(key, token)
    return table


def in_one_set(number: int) -> int:
    """A key of the first set, one of 65,535 that are told apart."""
    return number + 1


def test_it_takes_16_megabytes_at_most() -> None:
    table = NgramTable()
    assert table._all.nbytes == N_BYTES <= 16_000_000


def test_a_set_holds_no_more_than_it_has_room_for() -> None:
    table = learned([(in_one_set(number), number) for number in range(100)])
    assert table.contents.slots.tolist() == list(range(WAYS))
    found = {number: table.find(in_one_set(number)) for number in range(100)}
    kept = {number: token_of(word) for number, word in found.items() if word}
    assert len(kept) == WAYS
    assert kept[99] == 99
    assert kept == {number: number for number in kept}


def test_what_is_said_often_outlives_what_is_said_once() -> None:
    table = learned([(in_one_set(0), 7)] * 5)
    for number in range(1, 100):
        table.learn(in_one_set(number), number)
    assert token_of(table.find(in_one_set(0))) == 7


def test_what_was_said_often_long_ago_gives_way() -> None:
    table = learned([(in_one_set(0), 7)] * 5)
    table.learned = 4 * EPOCH
    for number in range(1, WAYS + 1):
        table.learn(in_one_set(number), number)
    assert table.find(in_one_set(0)) == 0


@pytest.mark.parametrize("times", [1, 10, 10_000])
def test_a_new_habit_replaces_an_old_one_however_long_it_lasted(times: int) -> None:
    table = learned([(5, 1)] * times)
    assert token_of(table.find(5)) == 1
    for _ in range(8):
        table.learn(5, 2)
    assert token_of(table.find(5)) == 2


def test_one_slip_does_not_replace_a_habit() -> None:
    table = learned([(5, 1)] * 3 + [(5, 2)])
    assert token_of(table.find(5)) == 1
    assert state_of(table.find(5)) == 2 << 3 | 1


@fewer
@given(pairs, pairs)
def test_what_is_copied_goes_on_as_the_original(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    table = learned(before)
    copy = NgramTable.of(table.contents)
    for key, token in after:
        table.learn(key, token)
        copy.learn(key, token)
    ours, theirs = table.contents, copy.contents
    assert ours.slots.tolist() == theirs.slots.tolist()
    assert ours.entries.tolist() == theirs.entries.tolist()
    assert ours.is_sound(300_001)


def test_contents_that_cannot_be_are_told() -> None:
    contents = learned([(5, 1), (1 << 40, 9)]).contents
    assert contents.is_sound(10)
    assert not contents.is_sound(9)
    assert not replace(contents, slots=contents.slots[::-1].copy()).is_sound(10)
    assert not replace(contents, slots=contents.slots + np.uint32(SLOTS)).is_sound(10)
    never_right = contents.entries.copy()
    never_right["word"] &= ~np.uint32(63)
    assert not replace(contents, entries=never_right).is_sound(10)
