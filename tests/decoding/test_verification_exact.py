"""verify, used step after step, emits exactly the target's law: every outcome is enumerated.

Each decision of the real verify forks with its exact probability: a symbolic uniform number splits
its interval where it is compared, and a draw splits over its tokens. The wrong rules known from
real code (measured in the literature and in other programs) must fail the same enumeration.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from decoding import verification
from decoding.draft import NO_DRAFT, Draft
from decoding.sampling import Distribution, SamplingSettings, point_mass, warp
from decoding.verification import TargetRows, Verdict, residual, verify

Prefix = tuple[int, ...]
Rows = Callable[[Prefix], Distribution]
Judge = Callable[[TargetRows, Draft, Any], Verdict]
DraftOf = Callable[[Prefix, "Path"], Draft]
Step = Callable[[Prefix, "Path"], Prefix]

N_VOCAB = 3
LOW_CONFIDENCE = 0.4
DENSE = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SPARSE = SamplingSettings(temperature=1.0, top_k=2, top_p=1.0, min_p=0.0)
SEEDS = range(4)


class Path:
    """One way through a program's random decisions, with its probability and its side roads."""

    def __init__(self, given: Prefix = ()) -> None:
        self._given = given
        self._taken: Prefix = ()
        self.probability = 1.0
        self.untaken: list[Prefix] = []

    def choose(self, probabilities: Sequence[float]) -> int:
        if len(self._taken) < len(self._given):
            choice = self._given[len(self._taken)]
        else:
            choice, *others = [i for i, chance in enumerate(probabilities) if chance > 0.0]
            self.untaken += [(*self._taken, other) for other in others]
        self._taken += (choice,)
        self.probability *= probabilities[choice]
        return choice

    def happens(self, chance: float) -> bool:
        return self.choose([1.0 - chance, chance]) == 1


class SymbolicUniform:
    """A number in (0, 1] of which only the outcomes of comparisons are known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.low, self.high = 0.0, 1.0

    def __mul__(self, factor: float) -> "Scaled":
        return Scaled(self, float(factor))

    __rmul__ = __mul__

    def is_at_most(self, bound: float) -> bool:
        inside = min(max(bound, self.low), self.high)
        if self.path.happens((inside - self.low) / (self.high - self.low)):
            self.high = inside
            return True
        self.low = inside
        return False


class Scaled:
    """A symbolic number times a factor of at least 0."""

    def __init__(self, number: SymbolicUniform, factor: float) -> None:
        self._number, self._factor = number, factor

    def __le__(self, bound: float) -> bool:
        if self._factor == 0.0:
            return bound >= 0.0
        return self._number.is_at_most(bound / self._factor)

    def __gt__(self, bound: float) -> bool:
        return not self <= bound


@pytest.fixture(autouse=True)
def _symbolic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Path stand for the random numbers in verify and in draw."""
    real_draw = Distribution.draw

    def draw(law: Distribution, number: SymbolicUniform) -> int:
        chosen = number.path.choose(law.probabilities.tolist())
        upper = law.probabilities.cumsum()
        middle = (upper[chosen] - law.probabilities[chosen] / 2) / upper[-1]
        token = int(law.ids[chosen])
        assert law.probabilities[chosen] < 1e-12 or real_draw(law, middle) == token
        return token

    monkeypatch.setattr(verification, "uniform", SymbolicUniform)
    monkeypatch.setattr(Distribution, "draw", draw)


def draw(law: Distribution, path: Path) -> int:
    return law.draw(cast(float, SymbolicUniform(path)))


def random_rows(seed: int, settings: SamplingSettings) -> Rows:
    """A model: a distribution that depends on all that came before."""

    @cache
    def row(prefix: Prefix) -> Distribution:
        generator = np.random.default_rng([seed, len(prefix), *prefix])
        return warp(generator.normal(size=N_VOCAB, scale=1.5).astype(np.float32), settings)

    return row


def law_of(step: Step, length: int = 3) -> dict[Prefix, float]:
    """The exact distribution of the first tokens that steps emit."""
    waiting: list[dict[Prefix, float]] = [defaultdict(float) for _ in range(length + 1)]
    waiting[0][()] = 1.0
    for prefixes in waiting[:length]:
        for prefix, weight in prefixes.items():
            paths: list[Prefix] = [()]
            while paths:
                path = Path(paths.pop())
                text = (prefix + step(prefix, path))[:length]
                waiting[len(text)][text] += weight * path.probability
                paths += path.untaken
    return waiting[length]


def plain(target: Rows) -> Step:
    return lambda prefix, path: (draw(target(prefix), path),)


def speculative(target: Rows, draft_of: DraftOf, judge: Judge = verify) -> Step:
    class RowsAfter:
        def __init__(self, prefix: Prefix, drafted: Prefix) -> None:
            self._prefix, self._drafted = prefix, drafted

        def __getitem__(self, i: int, /) -> Distribution:
            return target(self._prefix + self._drafted[:i])

    def step(prefix: Prefix, path: Path) -> Prefix:
        draft = draft_of(prefix, path)
        verdict = judge(RowsAfter(prefix, draft.tokens), draft, path)
        return (*draft.tokens[: verdict.accepted], verdict.next_token)

    return step


def sampled(q_draft: Rows, length: int) -> DraftOf:
    def draft_of(prefix: Prefix, path: Path) -> Draft:
        tokens: Prefix = ()
        laws: list[Distribution] = []
        for _ in range(length):
            laws.append(q_draft(prefix + tokens))
            tokens += (draw(laws[-1], path),)
        confidence = tuple(law.of(token) for law, token in zip(laws, tokens, strict=True))
        return Draft(tokens, "sampled", confidence, tuple(laws))

    return draft_of


def argmax(q_draft: Rows, length: int, *, with_softmax: bool = False) -> DraftOf:
    def draft_of(prefix: Prefix, path: Path) -> Draft:
        tokens: Prefix = ()
        laws: list[Distribution] = []
        for _ in range(length):
            laws.append(q_draft(prefix + tokens))
            tokens += (int(laws[-1].ids[laws[-1].probabilities.argmax()]),)
        ones = (1.0,) * length
        return Draft(tokens, "argmax", ones, tuple(laws) if with_softmax else None)

    return draft_of


def stopping(draft_of: DraftOf, *, keep: bool) -> DraftOf:
    """Ends a draft at its first token of low confidence, which is kept or dropped."""

    def stopped(prefix: Prefix, path: Path) -> Draft:
        draft = draft_of(prefix, path)
        assert draft.distributions is not None
        low = [i for i, value in enumerate(draft.confidence) if value < LOW_CONFIDENCE]
        count = low[0] + keep if low else len(draft)
        return Draft(
            draft.tokens[:count],
            draft.drafter,
            draft.confidence[:count],
            draft.distributions[:count],
        )

    return stopped


def of_varying_length(draft_of: DraftOf) -> DraftOf:
    """Sometimes proposes nothing, and what it proposes is 1 or 2 tokens long."""

    def varied(prefix: Prefix, path: Path) -> Draft:
        count = sum(prefix) % 3
        draft = draft_of(prefix, path)
        if count == 0:
            return NO_DRAFT
        laws = None if draft.distributions is None else draft.distributions[:count]
        return Draft(draft.tokens[:count], draft.drafter, draft.confidence[:count], laws)

    return varied


def judged(
    accept: Callable[[float, float], float],
    rest: Callable[[Distribution, Distribution], Distribution],
) -> Judge:
    """Token-level verification with the given acceptance probability and residual."""

    def judge(target: TargetRows, draft: Draft, path: Path) -> Verdict:
        assert draft.distributions is not None
        for i, (token, q_draft) in enumerate(zip(draft.tokens, draft.distributions, strict=True)):
            if not path.happens(min(1.0, accept(target[i].of(token), q_draft.of(token)))):
                return Verdict(i, draw(rest(target[i], q_draft), path))
        return Verdict(len(draft), draw(target[len(draft)], path))

    return judge


def sample_match(target: TargetRows, draft: Draft, path: Path) -> Verdict:
    """Draws every token from the target; the draft only tells how far one pass reaches."""
    for i, drafted in enumerate(draft.tokens):
        token = draw(target[i], path)
        if token != drafted:
            return Verdict(i, token)
    return Verdict(len(draft), draw(target[len(draft)], path))


def total_variation(one: dict[Prefix, float], other: dict[Prefix, float]) -> float:
    texts = one.keys() | other.keys()
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in texts) / 2


def error(target: Rows, draft_of: DraftOf, judge: Judge = verify) -> float:
    law = law_of(speculative(target, draft_of, judge))
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return total_variation(law, law_of(plain(target)))


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
