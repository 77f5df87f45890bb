"""A line chosen from several has the law it is handed on with: every outcome is enumerated."""

from collections import defaultdict
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from decoding.draft import SampledLine
from decoding.drafters.sampled_tree import select
from decoding.sampling.distribution import Distribution, SamplingSettings, point_mass
from decoding.verification.rules import verify_block
from tests.fixtures.enumeration import DENSE, N_VOCAB, Path, Prefix, Rows, random_rows, speculative
from tests.fixtures.one_step import distance_and_accepted

CASES = 200
LENGTH = 2


def rows_of(seed: int) -> Rows:
    """A model, some of whose laws leave tokens out or leave one alone."""
    bounds = SamplingSettings(1.0, top_k=(0, 0, 2)[seed % 3], top_p=1.0, min_p=0.0)
    rows = random_rows(seed, bounds)
    return lambda prefix: point_mass(seed % 3) if (seed + sum(prefix)) % 11 == 0 else rows(prefix)


def ends(seed: int, prefix: Prefix) -> bool:
    """Whether a line is at its end, as its own tokens tell."""
    return len(prefix) == LENGTH or (len(prefix) > 0 and (seed + prefix[-1]) % 5 == 0)


def lines(rows: Rows, seed: int) -> dict[Prefix, float]:
    """Every line that may be drawn, with its probability."""
    found: dict[Prefix, float] = {}
    open_lines: dict[Prefix, float] = {(): 1.0}
    while open_lines:
        prefix, chance = open_lines.popitem()
        if ends(seed, prefix):
            found[prefix] = chance
            continue
        law = rows(prefix)
        for token in law.ids.tolist():
            open_lines[(*prefix, token)] = chance * law.of(token)
    return found


@cache
def chances(seed: int, k: int) -> tuple[dict[Prefix, float], dict[Prefix, float]]:
    """How often each line is chosen, and how often its distributions say it is."""
    rows = rows_of(seed)
    possible = lines(rows, seed)
    chosen: dict[Prefix, float] = defaultdict(float)
    said: dict[Prefix, float] = {}
    for drawn in product(possible, repeat=k):
        index, laws = select(drawn, rows)
        line = drawn[index]
        chosen[line] += float(np.prod([possible[one] for one in drawn]))
        said[line] = float(np.prod([law.of(x) for law, x in zip(laws, line, strict=True)]))
    return chosen, said


def error(seed: int, k: int) -> float:
    chosen, said = chances(seed, k)
    return sum(abs(chosen[line] - said[line]) for line in chosen) / 2


@pytest.mark.slow
def test_the_line_chosen_has_the_law_it_is_handed_on_with() -> None:
    assert max(error(seed, 2) for seed in range(CASES)) < 1e-9
    assert max(error(seed, 3) for seed in range(3)) < 1e-9


def test_control_the_law_of_a_single_line_is_not_that_of_the_one_chosen() -> None:
    chosen, _ = chances(1, 2)
    single = lines(rows_of(1), 1)
    assert sum(abs(chosen[line] - single[line]) for line in chosen) / 2 > 0.05


def emitted_error(seed: int, *, as_if_single: bool = False) -> float:
    """Of the law that a line chosen from two and judged as a block leaves, and the target's own."""
    rows, target = rows_of(seed), random_rows(seed + 1000, DENSE)
    chosen, _ = chances(seed, 2)

    def step(prefix: Prefix, path: Path) -> Prefix:
        kept = list(chosen)
        line = kept[path.choose([chosen[one] for one in kept])]
        _, laws = select((line, line), rows)  # whichever the other was
        if as_if_single:
            laws = tuple(rows(line[:place]) for place in range(len(line)))
        draft = SampledLine(line, laws, width=2)
        return speculative(target, lambda *_: draft, verify_block, spreads=True)((), path)

    return distance_and_accepted(step, target, LENGTH + 1)[0]


@pytest.mark.usefixtures("symbolic")
def test_a_line_chosen_from_several_leaves_the_law_of_the_target() -> None:
    assert max(map(emitted_error, range(CASES))) < 1e-9


@pytest.mark.usefixtures("symbolic")
def test_control_a_chosen_line_judged_by_the_law_of_a_single_one_is_found() -> None:
    assert max(emitted_error(seed, as_if_single=True) for seed in range(20)) > 0.01


def test_a_single_line_keeps_its_law() -> None:
    rows = rows_of(1)
    index, laws = select([(0, 2)], rows)
    assert index == 0
    for prefix, law in zip([(), (0,)], laws, strict=True):
        assert law.probabilities == pytest.approx(rows(prefix).probabilities, abs=1e-15)


def test_only_prefixes_of_the_line_chosen_are_asked_for() -> None:
    law = Distribution(np.arange(3), np.array([0.25, 0.25, 0.5]))
    asked: list[Prefix] = []

    def laws(prefix: Prefix) -> Distribution:
        asked.append(prefix)
        return law

    index, _ = select([(0, 1), (2, 0), (2, 1), (2, 0)], laws)
    assert index == 2
    assert asked == [(), (2,)]


@pytest.mark.parametrize("rank", [0, 1, N_VOCAB - 1])
def test_long_lines_lose_nothing_to_rounding(rank: int) -> None:
    """Against fractions, where the line stays at the bottom, in the middle and at the top."""
    weights = np.array([1, 2, 5]) / 8
    law, k, length = Distribution(np.arange(3), weights), 4, 500
    _, laws = select([(rank,) * length] * k, lambda prefix: law)
    bounds = [Fraction(0), Fraction(1, 8), Fraction(3, 8), Fraction(1)]
    low, high = Fraction(0), Fraction(1)
    for place in range(40):
        inner = [low + (high - low) * bound for bound in bounds]
        of_all = high**k - low**k
        expected = [float((b**k - a**k) / of_all) for a, b in pairwise(inner)]
        assert laws[place].probabilities == pytest.approx(expected, rel=1e-12)
        low, high = inner[rank], inner[rank + 1]
    assert laws[-1].probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    limit = laws[39].probabilities if rank == 0 else weights
    assert laws[-1].probabilities == pytest.approx(limit, rel=1e-9)
