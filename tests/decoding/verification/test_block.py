"""verify_block emits exactly the target's law and keeps more: every outcome is enumerated.

Wrong variants of it, known from other programs, must fail the same enumeration.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from decoding.draft import SampledLine
from decoding.sampling.distribution import Distribution, SamplingSettings, point_mass
from decoding.verification.rules import (
    TargetRows,
    Verdict,
    acceptance,
    next_share,
    scaled_residual,
    verify,
    verify_block,
)
from tests.fixtures.enumeration import (
    DENSE,
    SPARSE,
    DraftOf,
    Judge,
    Path,
    Prefix,
    Rows,
    draw,
    error,
    random_rows,
    sampled,
    speculative,
)
from tests.fixtures.one_step import accepted, distance_and_accepted

pytestmark = pytest.mark.usefixtures("symbolic")

CASES = 200
LONGEST = 2


def case(seed: int) -> tuple[Rows, DraftOf]:
    """A target and drafts of it that are drawn, but for tokens that are certain.

    Either law may leave tokens out, and some are alike. A draft is as long as its own tokens say.
    """
    target = random_rows(seed, (DENSE, DENSE, SPARSE)[seed % 3])
    other = random_rows(seed + 1000, (DENSE, SPARSE)[seed % 2])

    def q_draft(prefix: Prefix) -> Distribution:
        kind = (7 * seed + sum(prefix)) % 8
        if kind == 0:
            return point_mass(seed % 3)
        return target(prefix) if kind == 1 else other(prefix)

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        tokens: Prefix = ()
        laws: list[Distribution] = []
        while len(tokens) < LONGEST and (seed % 4 or sum(tokens) < 2):
            laws.append(q_draft(prefix + tokens))
            tokens += (draw(laws[-1], path),)
        return SampledLine(tokens, tuple(laws))

    return target, draft_of


def distance(seed: int, judge: Judge = verify_block) -> float:
    """Total variation between what one step and plain decoding after it emit, and the target."""
    target, draft_of = case(seed)
    step = speculative(target, draft_of, judge, spreads=True)
    return distance_and_accepted(step, target, LONGEST + 1)[0]


def kept(target: Rows, draft_of: DraftOf, judge: Judge) -> float:
    """Tokens kept of a draft in the mean."""
    return accepted(speculative(target, draft_of, judge, spreads=True))


def test_drawn_lines_leave_the_law_of_the_target() -> None:
    assert max(map(distance, range(CASES))) < 1e-9


@pytest.mark.parametrize("bounds", [DENSE, SPARSE])
def test_step_after_step_leaves_the_law_of_the_target(bounds: SamplingSettings) -> None:
    target, q_draft = random_rows(1, DENSE), random_rows(101, bounds)
    assert error(target, sampled(q_draft, 3), verify_block) < 1e-9


def variant(
    *, breaks: bool = False, last_as_others: bool = False, whole_share: bool = False
) -> Judge:
    """Block verification with one mistake."""

    def judge(target: TargetRows, draft: SampledLine, path: Any) -> Verdict:
        laws = draft.distributions
        shares = [1.0]
        for place, (token, law) in enumerate(zip(draft.tokens, laws, strict=True)):
            shares.append(next_share(shares[-1], target[place].of(token), law.of(token)))
        last = 0
        for place in range(1, len(draft.tokens) + 1):
            chance = shares[place]
            if place < len(draft.tokens):
                chance = acceptance(scaled_residual(target[place], laws[place], chance)[1], chance)
            elif last_as_others:
                chance = acceptance(scaled_residual(target[place], laws[-1], chance)[1], chance)
            if path.happens(chance):
                last = place
            elif breaks:
                break
        if last == len(draft.tokens):
            return Verdict(last, draw(target[last], path))
        share = 1.0 if whole_share else shares[last]
        return Verdict(last, draw(scaled_residual(target[last], laws[last], share)[0], path))

    return judge


def test_control_the_right_variant_passes_the_same_enumeration() -> None:
    assert max(distance(seed, variant()) for seed in range(20)) < 1e-9


@pytest.mark.parametrize(
    "wrong",
    [variant(breaks=True), variant(last_as_others=True), variant(whole_share=True)],
    ids=["stops at the first failure", "the last token as others", "residual without its share"],
)
def test_control_wrong_variants_are_found(wrong: Judge) -> None:
    assert max(distance(seed, wrong) for seed in range(20)) > 0.01


def test_a_block_keeps_at_least_what_token_after_token_keeps() -> None:
    gains = [kept(*case(seed), verify_block) - kept(*case(seed), verify) for seed in range(CASES)]
    assert min(gains) > -1e-12
    assert np.mean(gains) > 0.01


def test_the_example_of_the_paper() -> None:
    """Sun et al. 2025: 10/9 tokens one by one, 11/9 as a block."""
    target = Distribution(np.arange(2), np.array([1 / 3, 2 / 3]))
    q_draft = Distribution(np.arange(2), np.array([2 / 3, 1 / 3]))
    draft_of = sampled(lambda _: q_draft, 2)
    keeps = partial(kept, lambda _: target, draft_of)
    assert keeps(verify) == pytest.approx(10 / 9)
    assert keeps(verify_block) == pytest.approx(11 / 9)


class Asked:
    """Target rows that remember which were asked for."""

    def __init__(self, rows: Callable[[int], Distribution]) -> None:
        self._rows = rows
        self.positions: list[int] = []

    def __getitem__(self, i: int, /) -> Distribution:
        self.positions.append(i)
        return self._rows(i)


def drawn(tokens: Sequence[int], law: Distribution) -> SampledLine:
    return SampledLine(tuple(tokens), (law,) * len(tokens))


def test_no_row_is_asked_for_twice_or_after_a_token_that_is_ruled_out() -> None:
    half = Distribution(np.array([0, 1]), np.array([0.5, 0.5]))
    rows = Asked(lambda place: point_mass(0) if place == 2 else half)
    verdict = verify_block(rows, drawn((0, 1, 1, 0), half), Path())  # type: ignore[arg-type]
    assert verdict.accepted <= 2
    assert rows.positions == [0, 1, 2]


def test_certain_tokens_are_kept_as_often_as_token_after_token() -> None:
    target = random_rows(3, DENSE)

    def certain(prefix: Prefix, path: Path) -> SampledLine:
        return SampledLine((1, 2), (point_mass(1), point_mass(2)))

    gain = kept(target, certain, verify_block) - kept(target, certain, verify)
    assert gain == pytest.approx(0.0, abs=1e-12)
