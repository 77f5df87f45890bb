"""A drafter model drafts for all replies side by side, in passes of all."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from backends.base import Context, Logits
from decoding.checks.distribution_check import p_value
from decoding.drafters.base import GrowingDraft
from decoding.planning.batch import shared_rows
from decoding.sampling.distribution import Distribution
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.simulated_cells import SimulatedSequence
from tests.fixtures.simulated_text import N_VOCAB
from tests.fixtures.simulator import CURVES, H100, Curve, costs_of
from tests.fixtures.together import GREEDY, PROMPT, Together, check_rate, whole

DRAWS: Curve = [0.0, *(0.05 + 0.001 * rows for rows in range(64))]
SHARES = (0.9, 0.6, 0.9)


def drafts(together: Together, place: int) -> list[tuple[int, int]]:
    """Of each step of a reply: how much was drafted and accepted."""
    return [(step.drafted, step.accepted) for step in together.steps[place]]


def alone(place: int, sampling: SamplingSettings = GREEDY) -> Together:
    together = Together(SHARES, CURVES["flat"], fixed=3, draws=DRAWS, sampling=sampling, logits=3.0)
    together.begin(place)
    while len(together.batch):
        together.batch.step()
    return together


def beside(sampling: SamplingSettings = GREEDY) -> Together:
    return Together(
        SHARES, CURVES["flat"], fixed=3, draws=DRAWS, sampling=sampling, logits=3.0
    ).all()


def passes(together: Together) -> list[int]:
    """Rows of each pass that the drafter ran for several at once."""
    model = together.models[0].shared
    assert model is not None
    assert isinstance(model.context, SimulatedSequence)
    return model.context.passes


@pytest.mark.parametrize("seed", range(3))
def test_each_drafts_what_it_would_alone_in_passes_of_all(seed: int) -> None:
    for sampling in (GREEDY, whole(seed)):
        together = beside(sampling)
        assert passes(together)
        assert max(passes(together)) >= 3
        for place in range(3):
            by_itself = alone(place, sampling)
            assert not passes(by_itself)
            assert together.said(place) == by_itself.said(place)
            assert drafts(together, place) == drafts(by_itself, place)


def test_rows_of_another_sequence_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong variant that the test above has to catch."""
    right = SimulatedSequence.forward_together

    def mixed(
        self: SimulatedSequence,
        given: Sequence[tuple[Context, Sequence[int]]],
        n_logits: Sequence[int] = (),
    ) -> list[Logits]:
        rows = right(self, given, n_logits)
        return [*rows[1:], rows[0]] if len({len(one) for one in rows}) == 1 else rows

    expected = [alone(place) for place in range(3)]
    together = Together(SHARES, CURVES["flat"], fixed=3, draws=DRAWS)
    model = together.models[0].shared
    assert model is not None
    monkeypatch.setattr(model.context, "forward_together", mixed.__get__(model.context))
    together.all()
    assert [drafts(together, place) for place in range(3)] != [
        drafts(one, place) for place, one in enumerate(expected)
    ]


def shares_of(together: Together, place: int, drawn: Counter[tuple[int, ...]]) -> None:
    """Whether each token of a reply is the likeliest, the one that is drafted, or another."""
    text = together.texts[place]
    for at, token in enumerate(together.said(place)[:12], PROMPT):
        right, drafted = text.tokens[at], text.proposed(at)
        if right != drafted:
            drawn[0 if token == right else 1 if token == drafted else 2,] += 1


def likelihood(seeds: int) -> list[float]:
    """Of what each of three sampled replies said, under the law of the model alone."""
    drawn = [Counter[tuple[int, ...]]() for _ in range(3)]
    for seed in range(seeds):
        together = beside(whole(seed))
        for place in range(3):
            shares_of(together, place, drawn[place])
    of_all = np.exp(3.0) + N_VOCAB - 1
    law = {(0,): np.exp(3.0) / of_all, (1,): 1.0 / of_all, (2,): (N_VOCAB - 2) / of_all}
    return [p_value(law, one) for one in drawn]


@pytest.mark.slow
def test_each_has_the_law_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(likelihood(120)) > 1e-3
    add, before = GrowingDraft.add, list[Distribution]()

    def of_another(
        self: GrowingDraft, token: int, confidence: float, q_draft: Distribution
    ) -> None:
        before.append(q_draft)
        add(self, token, confidence, before[-2] if len(before) > 1 else q_draft)

    monkeypatch.setattr(GrowingDraft, "add", of_another)
    assert min(likelihood(120)) < 1e-3


def test_what_one_drops_leaves_the_sequences_of_others_as_they_are() -> None:
    together = Together((0.9, 0.2, 0.9), CURVES["flat"], tokens=60, fixed=3, draws=DRAWS)
    for place in range(3):
        together.begin(place)
    while len(together.batch) == 3:
        together.batch.step()
        for place, model in enumerate(together.models):
            history = together.texts[place].tokens[: PROMPT + len(together.said(place))]
            known = model._context.tokens[: len(history)]
            # But for the last draft, which is dropped when the next one begins.
            assert known[:-3] == history[: len(known[:-3])]
    assert any(step.drafted > step.accepted for step in together.steps[1])


@pytest.mark.parametrize("faulty", [True, False])
def test_a_drafter_that_fails_ends_no_reply(faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Together(SHARES, CURVES["flat"], draws=DRAWS)

    def failing(*_: object) -> list[Logits]:
        raise AssertionError("it was closed")

    model = together.models[0].shared
    assert model is not None
    monkeypatch.setattr(model.context, "forward_together", failing)
    if faulty:
        for one in together.models:
            monkeypatch.setattr(one._context, "forward", failing)
    together.all()
    assert [together.said(place) for place in range(3)] == [
        together.written(place) for place in range(3)
    ]
    assert any(step.drafted for steps in together.steps for step in steps) is not faulty


class Passes:
    """Of a drafter: the first token takes one, each further one a tenth."""

    def together(self, count: int) -> float:
        return 0.1 * (1.0 + 0.1 * (count - 1)) if count else 0.0

    def observe_together(self, count: int, seconds: float) -> None: ...


def gain(
    counts: Sequence[int],
    offers: Sequence[Sequence[float]],
    extra: Callable[[int], float],
    rate: float,
) -> float:
    levels = Counter(level for count in counts for level in range(count))
    drafting = sum(map(Passes().together, levels.values()))
    expected = sum(sum(np.cumprod(one)[:count]) for one, count in zip(offers, counts, strict=True))
    return expected - rate * (drafting + extra(sum(counts)))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", sorted(CURVES))
def test_drafting_costs_what_its_passes_take(name: str, share: float) -> None:
    costs, drafter = costs_of(CURVES[name]), Passes()
    offers, plain = [[share] * 3, [share * 0.9] * 2, [share] * 3], costs.seconds(3)
    rate = 3 / plain

    def extra(drafted: int) -> float:
        return costs.seconds(3 + drafted) - plain

    counts, cost = shared_rows(offers, [drafter] * 3, 3, costs, rate, 13)
    levels = Counter(level for count in counts for level in range(count))
    drafting = sum(map(drafter.together, levels.values()))
    assert cost * plain == pytest.approx(extra(sum(counts)) + drafting)
    best = max(gain(one, offers, extra, rate) for one in product(range(4), range(3), range(4)))
    assert gain(counts, offers, extra, rate) == pytest.approx(best, abs=1e-9)


def model_beside(target: str) -> Curve:
    """What passes of a 135M drafter cost on an H100, in plain steps of a model there."""
    small = H100["135M"]
    return [0.0, *(cost * small.plain / H100[target].plain for cost in small.passes[1:])]


ALIKE = ((0.9,), (0.7,), (0.3,))
PLACES = [
    *product(("8B",), (2, 4, 16), (*ALIKE, (0.9, 0.3))),
    *product(("8B",), (8,), ((0.7,), (0.3,), (0.9, 0.3))),  # 8 right at 0.9 make 0.94
    *product(("32B",), (2, 4, 8, 16), (*ALIKE, (0.9, 0.3), (0.8, 0.5))),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "count", "shares"), [("32B", 4, (0.9, 0.3)), ("8B", 8, (0.7,)), ("8B", 4, (0.3,))]
)
def test_together_they_are_as_fast_as_at_the_best_fixed_length(
    target: str, count: int, shares: tuple[float, ...]
) -> None:
    check_rate(f"H100 {target}", count, shares, 200, model_beside(target))


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "count", "shares"), PLACES)
def test_so_they_are_on_every_machine(target: str, count: int, shares: tuple[float, ...]) -> None:
    check_rate(f"H100 {target}", count, shares, 1500, model_beside(target))
