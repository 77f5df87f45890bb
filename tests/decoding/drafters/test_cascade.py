"""A cascade hands each token on with the very law it was drawn from: every outcome is enumerated.

The drafter model is a table, what drafts for it a law of its own. Wrong ways to hand on the same
tokens must fail the same enumeration.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, SampledLine
from decoding.drafters.cascade import Cascade
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import Distribution, SamplingSettings, warp
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import (
    DENSE,
    LOW_CONFIDENCE,
    N_VOCAB,
    SPARSE,
    Path,
    Prefix,
    Rows,
    argmax,
    error_of_a_pass,
    random_rows,
    sampled,
    stopping,
)

START = 0
"""The token every history begins with; the enumerated text follows it."""

SEEDS = range(2)
COSTS = CostModel(Measured({1: 1.0, 16: 2.0}))
Open = Callable[..., Any]


class Guesses(IdleDrafter):
    """Up to most tokens of a law, drawn or its likeliest."""

    def __init__(self, rows: Rows, most: int = 2, *, drawn: bool = False) -> None:
        self.is_free = not drawn
        self.observed: list[Step] = []
        self._rows, self._most, self._drawn = rows, most, drawn

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        make = sampled if self._drawn else argmax
        found = make(self._rows, max(min(limit, self._most), 0))
        draft = found(tuple(history[1:]), self._sampler.drafting)  # type: ignore[arg-type]
        count = len(draft.tokens)
        return Draft(draft, "guess", (1.0,) * count, (1,) * count)

    def observe(self, step: Step) -> None:
        self.observed.append(step)


class Observed(IdleDrafter):
    """Hands on to a drafter, as what drafts for a drafter model; drafts of at most most tokens."""

    is_free = False

    def __init__(self, drafter: Drafter, most: int = 15) -> None:
        self._drafter, self._most = drafter, most

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._drafter.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        self._drafter.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return self._drafter.propose(history, min(limit, self._most), keep_on)

    def observe(self, step: Step) -> None: ...


Make = Callable[[], Any]
Cascades = Callable[..., Make]


def drafts(
    make: Make, length: int, keep_on: KeepOn | None = None, settings: SamplingSettings = DENSE
) -> Callable[[Prefix, Path], SampledLine]:
    """What a drafter made anew proposes, its numbers taken from a path."""

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        sampler = Sampler(settings)
        object.__setattr__(sampler, "drafting", path)
        history = [START, *prefix]
        drafter = make()
        drafter.begin(history, sampler)
        draft = drafter.propose(history, length, keep_on)
        assert len(draft) >= 1
        assert isinstance(draft.form, SampledLine)
        return draft.form

    return draft_of


def q_of(table: NDArray[np.float32]) -> Rows:
    """The law of a model that is a table."""

    def row(prefix: Prefix) -> Distribution:
        text = [START, *prefix]
        return warp(table[text[-2] if len(text) > 1 else -1, text[-1]], DENSE)

    return row


@pytest.fixture
def cascade(table: Callable[..., NDArray[np.float32]], fake_context: Open) -> Cascades:
    """Makes what makes a cascade: the model of a seed over what drafts for it."""

    def of(seed: int, below: Make, *, max_draft: int = 15) -> Make:
        context, costs = partial(fake_context, table(seed, N_VOCAB)), COSTS
        return lambda: Cascade(
            "cascade", context(), below(), costs, n_vocab=N_VOCAB, max_draft=max_draft
        )

    return of


def guesses(seed: int, most: int = 2, *, drawn: bool = False) -> Make:
    return lambda: Guesses(random_rows(seed, SPARSE if drawn else DENSE), most, drawn=drawn)


enumerated = pytest.mark.usefixtures("symbolic")


@enumerated
@pytest.mark.parametrize(("seed", "drawn"), [(0, False), (1, False), (0, True)])
def test_a_cascade_leaves_the_law_of_the_target(cascade: Cascades, seed: int, drawn: bool) -> None:
    target = random_rows(seed, DENSE)
    make = cascade(seed + 100, guesses(seed + 200, drawn=drawn))
    assert error_of_a_pass(target, drafts(make, 3, settings=SPARSE if drawn else DENSE)) < 1e-9


@enumerated
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cascade_that_stops_early_leaves_the_law_of_the_target(
    cascade: Cascades, seed: int
) -> None:
    """Whether to go on depends on tokens drawn; those of the same pass stand all the same."""
    target = random_rows(seed, DENSE)
    make = cascade(seed + 100, guesses(seed + 200, 1))
    unsure = drafts(make, 3, lambda confidence, evidence: confidence > LOW_CONFIDENCE)
    assert error_of_a_pass(target, unsure) < 1e-9


@enumerated
def test_a_cascade_of_three_levels_leaves_the_law_of_the_target(cascade: Cascades) -> None:
    target = random_rows(0, DENSE)
    inner = cascade(100, guesses(200, 1))
    make = cascade(300, lambda: Observed(inner(), most=2))
    assert error_of_a_pass(target, drafts(make, 3, settings=SPARSE)) < 1e-9


@enumerated
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cascade_under_a_controller_of_its_own_leaves_the_law_of_the_target(
    cascade: Cascades, seed: int
) -> None:
    """What drafts for the model is chosen by what it is expected to gain."""
    target = random_rows(seed, DENSE)

    def below() -> Controller:
        managed = ManagedDrafter(Guesses(random_rows(seed + 200, DENSE)))
        return Controller([managed], COSTS, N_VOCAB, clock=lambda: 0.0)

    assert error_of_a_pass(target, drafts(cascade(seed + 100, below), 3)) < 1e-9


@enumerated
@pytest.mark.parametrize("seed", SEEDS)
def test_control_tokens_handed_on_with_the_law_of_the_wrong_level_are_found(
    cascade: Cascades, seed: int
) -> None:
    target, cheap = random_rows(seed, DENSE), random_rows(seed + 200, SPARSE)
    make = cascade(seed + 100, guesses(seed + 200, drawn=True))

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        draft = drafts(make, 2)(prefix, path)
        laws = tuple(cheap(prefix + draft.tokens[:place]) for place in range(len(draft.tokens)))
        return SampledLine(draft.tokens, laws)

    assert error_of_a_pass(target, draft_of) > 0.01


@pytest.mark.slow
@enumerated
@pytest.mark.parametrize("seed", SEEDS)
def test_control_dropping_a_drawn_token_is_found(cascade: Cascades, seed: int) -> None:
    target = random_rows(seed, DENSE)
    make = cascade(seed + 100, guesses(seed + 200))
    assert error_of_a_pass(target, stopping(drafts(make, 3), keep=True)) < 1e-9
    assert error_of_a_pass(target, stopping(drafts(make, 3), keep=False)) > 0.01


@enumerated
@pytest.mark.parametrize("seed", SEEDS)
def test_control_handing_on_only_what_the_model_accepted_is_found(
    cascade: Cascades, seed: int
) -> None:
    target, guess = random_rows(seed, DENSE), Guesses(random_rows(seed + 200, DENSE))
    make = cascade(seed + 100, lambda: guess)

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        guess.observed.clear()
        draft = drafts(make, 2)(prefix, path)
        kept = guess.observed[0].accepted
        return SampledLine(draft.tokens[:kept], draft.distributions[:kept])

    assert error_of_a_pass(target, draft_of) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_with_certain_guesses_a_seed_draws_what_the_model_alone_draws(
    table: Callable[..., NDArray[np.float32]], fake_context: Open, seed: int, temperature: float
) -> None:
    """The same tokens with the same laws, in fewer passes where guesses are right."""
    rows = table(seed, N_VOCAB)
    settings = SamplingSettings(temperature, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
    alone = DraftModel("alone", fake_context(rows), n_vocab=N_VOCAB)
    below = Guesses(q_of(rows), most=3)
    context = fake_context(rows)
    one = Cascade("cascade", context, below, COSTS, n_vocab=N_VOCAB)
    for drafter in (alone, one):
        drafter.begin([START], Sampler(settings))
    first, second = alone.propose([START], 8), one.propose([START], 8)
    assert second.tokens == first.tokens
    assert second.confidence == first.confidence
    assert second.evidence == first.evidence
    if temperature == 0.0:
        assert context.forwards == [4, 4], "all guesses are right: 3 and a bonus token in a pass"
        assert [step.accepted for step in below.observed] == [3, 3]


@pytest.mark.parametrize("limit", range(6))
def test_no_more_tokens_than_asked_for(cascade: Cascades, limit: int) -> None:
    one = cascade(3, guesses(4, 9), max_draft=4)()
    one.begin([START], Sampler(DENSE))
    assert len(one.propose([START], limit)) == min(limit, 4)


def test_a_draft_ends_with_the_token_that_ends_the_reply(
    table: Callable[..., NDArray[np.float32]], fake_context: Open
) -> None:
    """Of tokens accepted in one pass those after it are no part of the draft."""
    rows = table(3, N_VOCAB)
    greedy = SamplingSettings(0.0)
    whole = DraftModel("alone", fake_context(rows), n_vocab=N_VOCAB)
    whole.begin([START], Sampler(greedy))
    tokens = whole.propose([START], 5).tokens
    end = tokens[1]
    one = Cascade(
        "cascade",
        fake_context(rows),
        Guesses(q_of(rows), most=5),
        COSTS,
        n_vocab=N_VOCAB,
        end_tokens=frozenset([end]),
    )
    one.begin([START], Sampler(greedy))
    draft = one.propose([START], 5)
    assert draft.tokens == tokens[: tokens.index(end) + 1]


def test_guesses_that_came_to_nothing_leave_no_trace(
    table: Callable[..., NDArray[np.float32]], fake_context: Open
) -> None:
    """Prompt lookup and a drafter model under a cascade follow what was said, not what it drew."""
    rows = table(5, N_VOCAB)
    history = [0, 1, 2, 0, 1, 2, 0]
    lookup, fresh = PromptLookup(), PromptLookup()
    one = Cascade("cascade", fake_context(rows), Observed(lookup), COSTS, n_vocab=N_VOCAB)
    one.begin(history, Sampler(DENSE))
    for said in ([2], [2, 1], [0, 1]):
        one.propose(history, 6)
        history += said
        one.commit(history)
    fresh.begin(history, Sampler(DENSE))
    assert lookup.propose(history, 9) == fresh.propose(history, 9) != NO_DRAFT


def test_a_pass_that_reads_more_is_reported_as_one_that_did_not(
    table: Callable[..., NDArray[np.float32]], fake_context: Open
) -> None:
    """What is learned of costs is of one pending token, as in the loop of the target."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    below = Guesses(random_rows(1, DENSE), most=2)
    one = Cascade(
        "cascade", fake_context(table(5, N_VOCAB)), below, COSTS, n_vocab=N_VOCAB, clock=clock
    )
    one.begin([START], Sampler(DENSE))
    assert one.backlog([START, 1, 2, 1]) == 4
    one.propose([START, 1, 2, 1], 3)
    step = below.observed[0]
    assert step.draft_seconds == 1.0
    assert step.verify_seconds == pytest.approx(COSTS.seconds(3) / COSTS.seconds(6))
