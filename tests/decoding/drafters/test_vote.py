"""A vote elects by hit rate, is certain given the text, and leaves the law of the target."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import Draft, Drafter, HostLine, KeepOn, SampledLine
from decoding.drafters.cascade import Vote, elect
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.sampling.distribution import SamplingSettings, point_mass, warp
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    DraftOf,
    Path,
    Prefix,
    draw,
    error_of_a_pass,
    random_rows,
)
from tests.fixtures.forms import certain, line_of

START = 0
SEEDS = range(2)
Table = Callable[..., NDArray[np.float32]]
Open = Callable[..., Any]


class Says(IdleDrafter):
    """Always the same token, or none."""

    def __init__(self, token: int | None, *, is_free: bool = True) -> None:
        self.name = f"says {token}"
        self.is_free = is_free
        self.token = token
        self.settings: list[SamplingSettings] = []
        self.committed: list[int] = []

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.settings.append(sampler.settings)

    def commit(self, history: Sequence[int]) -> None:
        self.committed = list(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = () if self.token is None else (self.token,) * limit
        return certain(tokens, self.name)


def vote(*voters: Drafter, **options: Any) -> Vote:
    one = Vote("vote", voters, **options)
    one.begin([START], Sampler(DENSE))
    return one


def told(one: Vote, said: Sequence[int], times: int) -> list[int]:
    """A history in which said came after as many proposals."""
    history = [START]
    for _ in range(times):
        one.propose(history, len(said))
        history += said
        one.commit(history)
    return history


@pytest.mark.parametrize(
    ("ballots", "rates", "elected"),
    [
        ([7, 8, 8], [0.5, 0.5, 0.5], 8),
        ([7, 8, 8], [0.9, 0.3, 0.3], 7),
        ([7, 8, None], [0.5, 0.5, 0.9], 7),
        ([None, 8, 7], [0.9, 0.5, 0.5], 8),
        ([7, 8, 9], [0.2, 0.3, 0.25], 8),
    ],
)
def test_the_highest_sum_of_hit_rates_is_elected_and_at_a_tie_the_first(
    ballots: list[int | None], rates: list[float], elected: int
) -> None:
    assert elect(ballots, rates) == elected


def test_without_a_ballot_nothing_is_elected() -> None:
    assert elect([None, None], [0.5, 0.5]) is None
    assert vote(Says(None)).propose([START], 4).tokens == ()
    assert vote(Says(None, is_free=False)).propose([START], 4).tokens == ()


def test_the_voter_that_is_right_wins_over_two_that_are_not() -> None:
    one = vote(Says(1), Says(1), Says(2))
    assert one.propose([START], 2).tokens == (1, 1)
    history = told(one, [2], times=40)
    draft = one.propose(history, 2)
    assert draft.tokens == (2, 2)
    assert draft.evidence == (0b100, 0b100)
    assert draft.confidence[0] > 0.8


def test_a_place_is_judged_only_where_those_before_it_were_right() -> None:
    one = vote(Says(1), Says(2))
    assert one.propose(history := told(one, [2, 1], times=1), 1).tokens == (2,), history


def test_who_supports_a_token_is_its_evidence() -> None:
    one = vote(Says(3), Says(None), Says(3), Says(4))
    assert one.propose([START], 2).evidence == (0b101, 0b101)


def test_it_stops_where_it_is_told_to_at_its_limits_and_at_the_end_of_the_reply() -> None:
    asked: list[int] = []

    def keep_on(confidence: float, evidence: int) -> bool:
        asked.append(evidence)
        return len(asked) < 3

    assert len(vote(Says(1)).propose([START], 9, keep_on)) == len(asked) == 3
    assert len(vote(Says(1)).propose([START], 4)) == 4
    assert len(vote(Says(1), max_draft=6).propose([START], 9)) == 6
    assert vote(Says(1)).propose([START], 0).tokens == ()
    assert vote(Says(1), end_tokens=frozenset([1])).propose([START], 9).tokens == (1,)


def test_it_is_free_if_all_its_voters_are() -> None:
    assert vote(Says(1), Says(2)).is_free
    assert not vote(Says(1), Says(2, is_free=False)).is_free


def test_voters_speak_at_temperature_0_and_hear_what_was_said() -> None:
    voter = Says(1)
    one = Vote("vote", [voter])
    settings = SamplingSettings(0.9, 5, 0.8, 0.1, repeat_penalty=1.2, seed=3)
    one.begin([START], Sampler(settings))
    assert voter.settings == [replace(settings, temperature=0.0)]
    one.propose([START], 3)
    one.commit([START, 1, 2])
    assert voter.committed == [START, 1, 2]


def test_guesses_that_came_to_nothing_leave_no_trace(table: Table, fake_context: Open) -> None:
    rows = table(5, N_VOCAB)

    def voters() -> list[Drafter]:
        return [PromptLookup(), DraftModel("m", fake_context(rows), n_vocab=N_VOCAB)]

    history = [0, 1, 2, 0, 1, 2, 0]
    used, fresh = voters(), voters()
    one = vote(*used)
    one.begin(history, Sampler(DENSE))
    for said in ([2], [2, 1], [0, 1]):
        one.propose(history, 6)
        history += said
        one.commit(history)
    for mine, other in zip(used, fresh, strict=True):
        other.begin(history, Sampler(replace(DENSE, temperature=0.0)))
        assert mine.propose(history, 9).tokens == other.propose(history, 9).tokens != ()


def voted(table: Table, fake_context: Open, seed: int) -> DraftOf:
    """Two drafter models and prompt lookup, made anew for each draft."""

    def draft_of(prefix: Prefix, path: Path) -> HostLine:
        history = [START, *prefix]
        models = [
            DraftModel(f"m{one}", fake_context(table(seed + one, N_VOCAB)), n_vocab=N_VOCAB)
            for one in (100, 200)
        ]
        one = Vote("vote", [*models, PromptLookup(min_match=1)])
        one.begin(history, Sampler(DENSE))
        return line_of(one.propose(history, 2))

    return draft_of


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_vote_leaves_the_law_of_the_target(table: Table, fake_context: Open, seed: int) -> None:
    target = random_rows(seed, DENSE)
    assert error_of_a_pass(target, voted(table, fake_context, seed)) < 1e-9


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize("seed", SEEDS)
def test_control_a_vote_judged_by_the_law_of_a_voter_is_found(
    table: Table, fake_context: Open, seed: int
) -> None:
    target = random_rows(seed, DENSE)
    rows = table(seed + 100, N_VOCAB)

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        draft = voted(table, fake_context, seed)(prefix, path)
        texts = [[START, *prefix, *draft.tokens[:place]] for place in range(len(draft.tokens))]
        laws = (warp(rows[text[-2] if len(text) > 1 else -1, text[-1]], DENSE) for text in texts)
        return SampledLine(draft.tokens, tuple(laws))

    assert error_of_a_pass(target, draft_of) > 0.01


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize("seed", SEEDS)
def test_control_a_vote_over_drawn_ballots_is_found(seed: int) -> None:
    """The voter that draws is handed on with its own law, but only where it won the vote."""
    target, other_voter = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    voter = random_rows(seed + 200, DENSE)

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        law = voter(prefix)
        drawn = draw(law, path)
        other = int(other_voter(prefix).probabilities.argmax())
        wins = law.of(drawn) > 0.5  # its weight depends on what it drew
        token, q_draft = (drawn, law) if wins else (other, point_mass(other))
        return SampledLine((token,), (q_draft,))

    assert error_of_a_pass(target, draft_of) > 0.01
