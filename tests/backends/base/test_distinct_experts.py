"""Experts that a pass reads, against enumerating every choice of its tokens."""

from itertools import combinations, product
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base.model import distinct_share, reads_of_one_token


def distinct(experts: int, choices: tuple[tuple[int, ...], ...]) -> float:
    """Share of the experts that at least one token chose."""
    return len({one for choice in choices for one in choice}) / experts


@pytest.mark.parametrize(("experts", "used"), [(4, 1), (4, 2), (5, 2), (6, 5)])
@pytest.mark.parametrize("n_tokens", [1, 2, 3])
def test_independent_tokens_read_what_enumeration_says(
    experts: int, used: int, n_tokens: int
) -> None:
    every = product(combinations(range(experts), used), repeat=n_tokens)
    expected = fmean(distinct(experts, choices) for choices in every)
    assert distinct_share(used / experts, n_tokens) == pytest.approx(expected)


@given(
    weights=st.lists(st.integers(0, 20), min_size=6, max_size=6).filter(any),
    n_tokens=st.integers(1, 3),
)
def test_it_is_an_upper_bound_where_some_experts_are_chosen_more_often(
    weights: list[int], n_tokens: int
) -> None:
    """The weights are those of the six pairs of four experts."""
    pairs = [
        pair for pair, weight in zip(combinations(range(4), 2), weights, strict=True) if weight
    ]
    likely = [weight / sum(weights) for weight in weights if weight]
    expected = 0.0
    for choices in product(range(len(pairs)), repeat=n_tokens):
        chance = 1.0
        for choice in choices:
            chance *= likely[choice]
        expected += chance * distinct(4, tuple(pairs[choice] for choice in choices))
    assert expected <= distinct_share(0.5, n_tokens) + 1e-9


def test_long_passes_read_every_expert_once() -> None:
    assert reads_of_one_token(0.25, 1) == 1.0
    assert reads_of_one_token(0.25, 2) == 1.75
    assert reads_of_one_token(0.25, 64) == pytest.approx(4.0)
    assert [reads_of_one_token(0.0, n) for n in (1, 7)] == [1, 7]
