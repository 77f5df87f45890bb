"""verify, used step after step, emits exactly the target's law: every outcome is enumerated.

The wrong rules known from real code (measured in the literature and in other programs) must fail
the same enumeration.
"""

from collections.abc import Callable

import pytest

from decoding.draft import HostLine, PointMassLine, SampledLine
from decoding.sampling.distribution import Distribution, SamplingSettings, point_mass
from decoding.verification.rules import TargetRows, Verdict, residual
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SEEDS,
    SPARSE,
    DraftOf,
    Judge,
    Path,
    Prefix,
    argmax,
    draw,
    error,
    random_rows,
    sampled,
    stopping,
)

pytestmark = pytest.mark.usefixtures("symbolic")


def of_varying_length(draft_of: DraftOf) -> DraftOf:
    """Sometimes proposes nothing, and what it proposes is 1 or 2 tokens long."""

    def varied(prefix: Prefix, path: Path) -> HostLine:
        count = sum(prefix) % 3
        draft = draft_of(prefix, path)
        if count == 0 or isinstance(draft, PointMassLine):
            return PointMassLine(draft.tokens[:count])
        return SampledLine(draft.tokens[:count], draft.distributions[:count])

    return varied


def judged(
    accept: Callable[[float, float], float],
    rest: Callable[[Distribution, Distribution], Distribution],
) -> Judge:
    """Token-level verification with the given acceptance probability and residual."""

    def judge(target: TargetRows, draft: SampledLine, path: Path) -> Verdict:
        for i, (token, q_draft) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
            if not path.happens(min(1.0, accept(target[i].of(token), q_draft.of(token)))):
                return Verdict(i, draw(rest(target[i], q_draft), path))
        return Verdict(len(draft.tokens), draw(target[len(draft.tokens)], path))

    return judge


def sample_match(target: TargetRows, draft: HostLine, path: Path) -> Verdict:
    """Draws every token from the target; the draft only tells how far one pass reaches."""
    for i, drafted in enumerate(draft.tokens):
        token = draw(target[i], path)
        if token != drafted:
            return Verdict(i, token)
    return Verdict(len(draft.tokens), draw(target[len(draft.tokens)], path))


@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_sampled_drafts_leave_the_law_of_the_target(seed: int, length: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, sampled(q_draft, length)) < 1e-9


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_deterministic_drafts_leave_the_law_of_the_target(seed: int, length: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, argmax(q_draft, length)) < 1e-9


@pytest.mark.parametrize(
    ("of_target", "of_draft"), [(SPARSE, SPARSE), (SPARSE, DENSE), (DENSE, SPARSE)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_different_supports_leave_the_law_of_the_target(
    seed: int, of_target: SamplingSettings, of_draft: SamplingSettings
) -> None:
    target, q_draft = random_rows(seed, of_target), random_rows(seed + 100, of_draft)
    assert error(target, sampled(q_draft, 2)) < 1e-9
    assert error(target, argmax(q_draft, 2)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_drafts_the_target_never_says_leave_its_law(seed: int) -> None:
    target = random_rows(seed, SPARSE)

    def impossible(prefix: Prefix) -> Distribution:
        (token,) = set(range(N_VOCAB)) - set(target(prefix).ids.tolist())
        return point_mass(token)

    assert error(target, sampled(impossible, 2)) < 1e-9
    assert error(target, argmax(impossible, 2)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_a_draft_equal_to_the_target_leaves_its_law(seed: int) -> None:
    target = random_rows(seed, DENSE)
    assert error(target, sampled(target, 3)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_a_draft_almost_equal_to_the_target_leaves_its_law(seed: int) -> None:
    target, other = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)

    def near(prefix: Prefix) -> Distribution:
        law = target(prefix)
        mixed = 0.97 * law.probabilities + 0.03 * other(prefix).probabilities
        return Distribution(law.ids, mixed)

    assert error(target, sampled(near, 3)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_drafts_of_varying_length_leave_the_law_of_the_target(seed: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, of_varying_length(sampled(q_draft, 3))) < 1e-9
    assert error(target, of_varying_length(argmax(q_draft, 3))) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_stopping_after_a_token_of_low_confidence_is_lossless(seed: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, stopping(sampled(q_draft, 3), keep=True)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_control_the_right_rule_and_sample_match_pass_the_same_enumeration(seed: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    right = judged(lambda p, q: p / q, residual)
    assert error(target, sampled(q_draft, 2), right) < 1e-9
    assert error(target, sampled(q_draft, 2), sample_match) < 1e-9
    assert error(target, argmax(q_draft, 2), sample_match) < 1e-9


WRONG_JUDGES: dict[str, Judge] = {
    "every drafted token accepted": judged(lambda p, q: 1.0, residual),
    "ratio inverted": judged(lambda p, q: q / p, residual),
    "resampled from the whole target": judged(lambda p, q: p / q, lambda p, q: p),
    "residual of the draft": judged(lambda p, q: p / q, lambda p, q: residual(q, p)),
}


@pytest.mark.parametrize("name", WRONG_JUDGES)
@pytest.mark.parametrize("seed", SEEDS)
def test_control_wrong_verification_is_found(seed: int, name: str) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, sampled(q_draft, 2), WRONG_JUDGES[name]) > 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_control_an_argmax_draft_judged_by_its_softmax_is_found(seed: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, argmax(q_draft, 2, with_softmax=True)) > 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_control_dropping_a_drawn_token_of_low_confidence_is_found(seed: int) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    assert error(target, stopping(sampled(q_draft, 3), keep=False)) > 0.01


def mixed(one: DraftOf, other: DraftOf, is_other: Callable[[Prefix, int], bool]) -> DraftOf:
    """A draft whose tokens come of one drafter or of another, as the tokens before tell."""

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        tokens: Prefix = ()
        laws: list[Distribution] = []
        for place in range(3):
            source = other if is_other(prefix + tokens, place) else one
            draft = source(prefix + tokens, path)
            tokens += draft.tokens
            is_drawn = isinstance(draft, SampledLine)
            laws += draft.distributions if is_drawn else (point_mass(tokens[-1]),)
        return SampledLine(tokens, tuple(laws))

    return draft_of


WHERE: dict[str, Callable[[Prefix, int], bool]] = {
    "at the end": lambda text, place: place == 2,
    "at the beginning": lambda text, place: place == 0,
    "between": lambda text, place: place == 1,
    "wherever the text tells": lambda text, place: sum(text) % 2 == 0,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_and_certain_tokens_in_one_draft_leave_the_law_of_the_target(
    seed: int, where: str
) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    draft_of = mixed(sampled(q_draft, 1), argmax(q_draft, 1), WHERE[where])
    assert error(target, draft_of) < 1e-9


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("seed", SEEDS)
def test_control_certain_tokens_judged_by_the_law_of_drawn_ones_are_found(
    seed: int, where: str
) -> None:
    target, q_draft = random_rows(seed, DENSE), random_rows(seed + 100, DENSE)
    certain = argmax(q_draft, 1, with_softmax=True)
    assert error(target, mixed(sampled(q_draft, 1), certain, WHERE[where])) > 0.01
