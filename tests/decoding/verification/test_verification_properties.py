"""Properties of the rules for lines, and of residual, over arbitrary distributions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.draft import HostLine, PointMassLine, SampledLine
from decoding.sampling.distribution import Distribution, point_mass, uniform
from decoding.verification.rules import residual, verify, verify_block
from decoding.verification.target_pass import verify_line

N_VOCAB = 8
SMALLEST = 2.0**-53

common = settings(max_examples=100)


def normalised(ids: Sequence[int], weights: Sequence[float]) -> Distribution:
    values = np.array(weights)
    return Distribution(np.array(ids), values / values.sum())


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    """Any subset of the vocabulary, some of it with probability 0."""
    ids = sorted(draw(st.sets(st.integers(0, N_VOCAB - 1), min_size=1)))
    weight = st.one_of(st.just(0.0), st.floats(1e-9, 1.0))
    weights = draw(st.lists(weight, min_size=len(ids), max_size=len(ids)))
    weights[draw(st.integers(0, len(ids) - 1))] = 1.0
    return normalised(ids, weights)


tokens = st.integers(0, N_VOCAB - 1)
generators = st.integers(0, 2**32).map(np.random.default_rng)


class Asked:
    """Target rows that remember which were asked for."""

    def __init__(self, rows: Sequence[Distribution]) -> None:
        self._rows = rows
        self.positions: list[int] = []

    def __getitem__(self, i: int, /) -> Distribution:
        self.positions.append(i)
        return self._rows[i]


class Scripted:
    """A generator that gives one number again and again."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value


def scripted(value: float) -> Any:
    return Scripted(value)


@st.composite
def drafts(draw: st.DrawFn, drawn: bool | None = None) -> HostLine:
    """A draft of up to 4 tokens, with the distributions they were drawn from or without."""
    length = draw(st.integers(0, 4))
    drawn = draw(st.booleans()) if drawn is None else drawn
    if not drawn:
        chosen = draw(st.lists(tokens, min_size=length, max_size=length))
        return PointMassLine(tuple(chosen))
    laws = draw(st.lists(distributions(), min_size=length, max_size=length))
    generator = draw(generators)
    chosen = [law.draw(uniform(generator)) for law in laws]
    return SampledLine(tuple(chosen), tuple(laws))


rows_of_target = st.lists(distributions(), min_size=5, max_size=5)


@common
@given(distributions(), distributions())
def test_residual_is_the_normalised_positive_part(p: Distribution, q: Distribution) -> None:
    left = residual(p, q)
    expected = [max(p.of(token) - q.of(token), 0.0) for token in range(N_VOCAB)]
    total = sum(expected)
    if total > 1e-12:
        found = [left.of(token) for token in range(N_VOCAB)]
        assert found == pytest.approx([value / total for value in expected], abs=1e-12)


@common
@given(distributions(), distributions())
def test_residual_is_a_distribution_with_exact_zeros(p: Distribution, q: Distribution) -> None:
    left = residual(p, q)
    assert left.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (left.probabilities >= 0.0).all()
    for token in range(N_VOCAB):
        if p.of(token) == 0.0:
            assert left.of(token) == 0.0
        if left is not p and p.of(token) <= q.of(token):
            assert left.of(token) == 0.0


@common
@given(distributions())
def test_residual_of_equal_distributions_is_the_target(p: Distribution) -> None:
    assert residual(p, p) is p


@pytest.mark.slow
@common
@given(rows_of_target, drafts(), generators)
def test_the_next_token_and_every_accepted_one_are_possible(
    rows: list[Distribution], draft: HostLine, generator: np.random.Generator
) -> None:
    verdict = verify_line(Asked(rows), draft, generator)
    said = (*draft.tokens[: verdict.accepted], verdict.next_token)
    assert 0 <= verdict.accepted <= len(draft.tokens)
    assert all(rows[i].of(token) > 0.0 for i, token in enumerate(said))


@pytest.mark.slow
@common
@given(rows_of_target, drafts(), generators)
def test_no_row_after_a_rejection_is_asked_for(
    rows: list[Distribution], draft: HostLine, generator: np.random.Generator
) -> None:
    asked = Asked(rows)
    verdict = verify(asked, draft, generator)
    assert asked.positions == list(range(verdict.accepted + 1))


@pytest.mark.slow
@common
@given(rows_of_target, drafts(drawn=True), generators)
def test_a_block_uses_a_number_for_each_token_and_one_more(
    rows: list[Distribution], draft: SampledLine, generator: np.random.Generator
) -> None:
    """What judges on a device takes off as many, so that a seed goes on alike."""
    after = np.random.Generator(type(generator.bit_generator)())
    after.bit_generator.state = generator.bit_generator.state
    after.random(len(draft.tokens) + 1)
    verify_block(Asked(rows), draft, generator)
    assert generator.random() == after.random()


@pytest.mark.slow
@common
@given(rows_of_target, drafts(drawn=False), generators)
def test_a_rejected_certain_token_does_not_come_again(
    rows: list[Distribution], draft: HostLine, generator: np.random.Generator
) -> None:
    verdict = verify(Asked(rows), draft, generator)
    if verdict.accepted < len(draft.tokens):
        assert verdict.next_token != draft.tokens[verdict.accepted]


@common
@given(st.lists(tokens, min_size=5, max_size=5), drafts(), generators)
def test_greedy_accepts_the_matching_prefix_and_then_says_the_best_token(
    best: list[int], draft: HostLine, generator: np.random.Generator
) -> None:
    matching = 0
    while matching < len(draft.tokens) and draft.tokens[matching] == best[matching]:
        matching += 1
    verdict = verify_line(Asked([point_mass(token) for token in best]), draft, generator)
    assert verdict.accepted == matching
    assert verdict.next_token == best[matching]


@common
@given(drafts(drawn=True), distributions(), generators)
def test_a_draft_from_the_target_itself_is_accepted_whole(
    draft: SampledLine, bonus: Distribution, generator: np.random.Generator
) -> None:
    for rule in (verify, verify_block):
        verdict = rule(Asked([*draft.distributions, bonus]), draft, generator)
        assert verdict.accepted == len(draft.tokens)
        assert bonus.of(verdict.next_token) > 0.0


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0 - SMALLEST])
def test_a_token_the_target_never_says_is_rejected_at_any_number(value: float) -> None:
    draft = SampledLine((1,), (normalised([0, 1], [1e-300, 1.0]),))
    for rule in (verify, verify_block):
        verdict = rule(Asked([point_mass(0), point_mass(0)]), draft, scripted(value))
        assert (verdict.accepted, verdict.next_token) == (0, 0)


@pytest.mark.parametrize("of_token", [0.0, 5e-324, 1e-310])
def test_rounding_to_0_accepts_no_token_the_target_never_says(of_token: float) -> None:
    q_draft = Distribution(np.array([0, 1]), np.array([1.0, of_token]))
    draft = SampledLine((1,), (q_draft,))
    for rule in (verify, verify_block):
        verdict = rule(Asked([point_mass(0), point_mass(0)]), draft, scripted(1.0 - SMALLEST))
        assert (verdict.accepted, verdict.next_token) == (0, 0)


@common
@given(st.integers(0, 2**53 - 1))
def test_uniform_lies_above_0_and_up_to_1(steps: int) -> None:
    assert 0.0 < uniform(scripted(steps * SMALLEST)) <= 1.0


def test_uniform_turns_the_generators_0_into_1() -> None:
    assert uniform(scripted(0.0)) == 1.0
    assert uniform(scripted(1.0 - SMALLEST)) == SMALLEST
