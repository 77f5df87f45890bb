"""Which outcomes of a verification are drafted for, and in which order."""

from collections import Counter
from itertools import islice

import pytest

from decoding.drafters.overlapping import (
    MOST_CANDIDATES,
    MOST_OUTCOMES,
    Outcome,
    kept_distribution,
    likeliest_outcomes,
)


def test_the_numbers_of_kept_tokens_have_the_chances_of_a_chain() -> None:
    chances = kept_distribution([0.9, 0.5])
    assert chances == pytest.approx([0.1, 0.45, 0.45])
    assert sum(kept_distribution([0.3, 0.8, 1.0, 0.0])) == pytest.approx(1.0)


def test_the_likeliest_outcome_comes_first() -> None:
    assert next(likeliest_outcomes([0.9, 0.9])) == Outcome(2, 0)
    assert next(likeliest_outcomes([0.2, 0.9])) == Outcome(0, 0)
    assert next(likeliest_outcomes([0.95, 0.1])) == Outcome(1, 0)


def test_every_outcome_comes_once_and_candidates_in_order() -> None:
    outcomes = list(likeliest_outcomes([0.8, 0.7, 0.6, 0.5, 0.4]))
    assert len(set(outcomes)) == len(outcomes) == MOST_OUTCOMES
    for kept in range(6):
        ranks = [outcome.rank for outcome in outcomes if outcome.kept == kept]
        assert ranks == list(range(len(ranks)))
        assert len(ranks) <= MOST_CANDIDATES


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [10, 20])
def test_the_fan_out_is_that_of_the_power_law(exponent: float, count: int) -> None:
    """F_k in proportion to P(k)^(1/(1+r)), but for rounding and the most candidates."""
    acceptance = [0.7, 0.6, 0.8]
    chances = kept_distribution(acceptance)
    taken = Counter(one.kept for one in islice(likeliest_outcomes(acceptance, exponent), count))
    shares = [chance ** (1.0 / (1.0 + exponent)) for chance in chances]
    for kept, share in enumerate(shares):
        wanted = min(count * share / sum(shares), MOST_CANDIDATES)
        assert abs(taken[kept] - wanted) <= 1.5


def test_a_chain_that_is_accepted_alike_has_a_capped_geometric_fan_out() -> None:
    """F_k = F_0 a^(k/(1+r)), and F_K = F_0 a^(K/(1+r)) (1-a)^(-1/(1+r))."""
    share, length, exponent = 0.6, 4, 1.0
    chances = kept_distribution([share] * length)
    roots = [chance ** (1.0 / (1.0 + exponent)) for chance in chances]
    for kept in range(length):
        assert roots[kept] == pytest.approx(roots[0] * share ** (kept / 2))
    assert roots[length] == pytest.approx(roots[0] * share ** (length / 2) * (1 - share) ** -0.5)
