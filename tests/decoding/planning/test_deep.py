"""After many tokens held, on machines that others measured: never slower, near the best length.

`pytest -s -m "slow or not slow" tests/decoding/planning/test_deep.py` prints the table of the docs.
"""

import statistics

import pytest

from tests.fixtures.deep import DEEP, Deep, DeepOutcome, deep_outcomes

DEPTHS = (1024, 4096, 16384, 65536)
_SEEDS = 2

COSTLY = DEEP[0]
"""A draft of one token may lose more than the risk budget allows, so that little is drafted."""

each = pytest.mark.parametrize(
    "known", [pytest.param(one, id=one.name, marks=pytest.mark.slow) for one in DEEP]
)


def _runs(known: Deep, depth: int, *, is_whole: bool = False) -> list[DeepOutcome]:
    return [
        one
        for seed in range(_SEEDS)
        for one in deep_outcomes(known, depth, seed, is_whole=is_whole)
    ]


def _pair(one: DeepOutcome) -> tuple[float, float]:
    return one.auto, one.best


def of_best(runs: list[DeepOutcome]) -> float:
    return statistics.fmean(one.auto / one.best for one in runs)


@each
def test_each_kind_of_text_is_never_slower_and_near_the_best_length(known: Deep) -> None:
    for depth in DEPTHS:
        runs = _runs(known, depth)
        kinds = {kind: [one for one in runs if one.kind == kind] for kind in known.acceptance}
        for kind, of in kinds.items():
            auto, best = (statistics.fmean(each) for each in zip(*map(_pair, of), strict=True))
            print(f"\n| {known.name} | {depth} | {kind} | {auto:.2f}/{best:.2f} |", end="")
        assert min(one.auto for one in runs) >= 0.98
        assert of_best(runs) >= 0.95 or known is COSTLY
        assert min(one.auto / one.best for one in runs) >= 0.91 or known is COSTLY


@pytest.mark.slow
def test_passes_that_all_take_longer_alike_would_be_slower_and_far_from_the_best() -> None:
    """As before costs were measured by tokens held: the tests above can fail."""
    b60, m5 = DEEP[5], DEEP[4]
    assert min(one.auto for one in _runs(b60, 65536, is_whole=True)) < 0.97
    assert of_best([one for one in _runs(m5, 65536, is_whole=True) if one.kind == "code"]) < 0.9


def test_a_machine_whose_drafts_stop_to_pay_stops_drafting() -> None:
    """One of the above, in little time."""
    short, long = (deep_outcomes(DEEP[5], depth, 0, rounds=1) for depth in (4096, 65536))
    assert short[1].auto > 1.3
    assert min(one.auto for one in long) >= 0.98
