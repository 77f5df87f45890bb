"""A reply that fails along some texts says what plain decoding says, and fails where that does.

A failure is enumerated as one more token, after which nothing comes: of the grammar, or of the
model's row. A failure of the drafter's rows changes nothing. One drafted step is enumerated, as is
the token before it. What earlier rules did, and other wrong ways to fail, must be found.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import Logits, ModelError
from backends.heads.head import independent
from decoding import generation
from decoding.constraint.grammar import ConstraintError
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import BlockDraft, DraftModel
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import FaultGuard, ManagedDrafter
from decoding.planning.turns import TakingTurns
from decoding.sampling import sampler as warped_rows
from decoding.sampling.distribution import Distribution, point_mass, warp
from decoding.sampling.sampler import Sampler
from decoding.verification import target_pass
from tests.decoding.conftest import FakeContext, random_table
from tests.fixtures.blocks import ScriptedBlocks
from tests.fixtures.branching import MAKERS, PROMPT
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import DENSE, N_VOCAB, Path, Prefix, draw, law_of, total_variation
from tests.fixtures.forms import certain, certain_tree
from tests.fixtures.fragile import Fragile
from tests.fixtures.loop_law import sampler_along

pytestmark = pytest.mark.usefixtures("symbolic_loop")

LENGTH = 4
"""Tokens compared: one before the draft, two drafted ones, and what follows them."""

FAILED = N_VOCAB
"""What stands for a failure in a text."""

DEAR = {"by temperature", "sampled to an end", "paths"}
"""Forms that take long to enumerate, or are like others."""

ROWS = {"certain line", "certain tree"}
OF_DRAFTER = {"paths to an end", "cascade"}

Of = Literal["grammar", "rows", "drafter"]
"""What fails: the grammar, or the rows of the target or of the drafter."""

Bad = frozenset[Prefix]
"""Texts of a reply after which nothing can follow."""


def fails(text: Sequence[int], bad: Bad) -> bool:
    return any(tuple(text[:end]) in bad for end in range(len(text) + 1))


class Damaged(FakeContext):
    """A model whose rows are no numbers after some texts."""

    bad: Bad = frozenset()

    def row(self, text: Sequence[int]) -> NDArray[np.float32]:
        row = super().row(text)
        return np.full_like(row, np.nan) if fails(text[len(PROMPT) :], self.bad) else row


class Guarded(IdleDrafter):
    """Hands on to a drafter as the controller does."""

    def __init__(self, drafter: Drafter, guard: type[FaultGuard] = FaultGuard) -> None:
        self.guard = guard(drafter)
        self.is_free = drafter.is_free

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.guard.drafter.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        self.guard.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return self.guard.propose(history, limit, N_VOCAB, keep_on)


class Says(IdleDrafter):
    """Certain tokens, as a line or as a tree."""

    def __init__(self, *tokens: int, parents: Sequence[int] = ()) -> None:
        self._tokens, self._parents = tokens, parents

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        if self._parents:
            return certain_tree(self._tokens, self._parents)
        return certain(self._tokens[: max(limit, 0)])


def line(context: FakeContext) -> DraftModel:
    return DraftModel("line", context, n_vocab=N_VOCAB, max_draft=2)


def cascade(context: FakeContext) -> Cascade:
    costs = CostModel(Measured({1: 1.0, 16: 2.0}))
    return Cascade("cascade", context, Says(0, 1), costs, n_vocab=N_VOCAB, max_draft=2)


def block(context: FakeContext) -> BlockDraft:
    def rows(text: Sequence[int], count: int) -> Callable[[Sequence[int]], Logits | None]:
        return independent(np.array([context.row([*text, place % 3]) for place in range(count)]))

    return BlockDraft("block", ScriptedBlocks(rows, 2).context, n_vocab=N_VOCAB)


def several(context: FakeContext) -> Controller:
    """Free drafters, of which each has its turn."""
    free = [ManagedDrafter(Says(0, 1)), ManagedDrafter(Says(0, 2)), ManagedDrafter(Says(1, 0))]
    for number, managed in enumerate(free):
        managed.drafter.name = str(number)  # type: ignore[misc]
    costs = CostModel(Measured({1: 1.0, 16: 1.01}))
    return TakingTurns(Controller(free, costs, N_VOCAB), (2,))


FORMS: dict[str, Callable[[FakeContext], Drafter]] = {
    **MAKERS,
    "line": line,
    "line of a block": block,
    "cascade": cascade,
    "vote": lambda one: Vote("vote", [line(one), Says(1, 1)], max_draft=2),
    "certain line": lambda _: Says(0, 1, 2),
    "certain tree": lambda _: Says(0, 1, 2, 1, parents=(-1, -1, 0, 0)),
    "several": several,
}


def law(
    bad: Bad,
    make: Callable[[FakeContext], Drafter] | None,
    guard: type[FaultGuard] = FaultGuard,
    kind: type[Sampler] = Sampler,
    *,
    of: Of = "grammar",
) -> dict[Prefix, float]:
    """What the loop says, drafting by what make makes; plain decoding's own without it."""
    target, drafting = Damaged(random_table(3, N_VOCAB)), Damaged(random_table(7, N_VOCAB))
    target.bad = bad if of == "rows" else frozenset()
    drafting.bad = bad if of == "drafter" else frozenset()
    healthy = FakeContext(target.table)

    def rows(prefix: Prefix) -> Distribution:
        is_over = FAILED in prefix or (of != "drafter" and fails(prefix, bad))
        return point_mass(FAILED) if is_over else warp(healthy.row([*PROMPT, *prefix]), DENSE)

    def step(prefix: Prefix, path: Path) -> Prefix:
        if prefix or make is None:
            return (draw(rows(prefix), path),)
        said, steps = list[int](), 0
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(generation, "Sampler", partial(sampler_along, path, kind=kind))
            events = generate(
                target,
                PROMPT,
                DENSE,
                Limits(9, frozenset()),
                drafters=always(Guarded(make(drafting), guard)),
                constraint=Fragile(partial(fails, bad=bad)) if of == "grammar" else None,
            )
            try:
                for event in events:
                    if isinstance(event, Step):
                        said, steps = [*said, *event.tokens], steps + 1
                        if steps == 2:
                            break
            except ModelError:
                said.append(FAILED)
            events.close()  # type: ignore[attr-defined]
        return tuple(said)

    return law_of(step, LENGTH)


def error(bad: Bad, form: str, *wrong: type, of: Of = "grammar") -> float:
    found = law(bad, FORMS[form], *wrong, of=of)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    return total_variation(found, law(bad, None, of=of))


EVERY = [text for size in range(LENGTH) for text in product(range(N_VOCAB), repeat=size)]
"""All texts up to the end of the longest draft."""


def random_bad(seed: int) -> Bad:
    """A third of all texts, none of them before the draft."""
    random = np.random.default_rng(seed)
    return frozenset(text for text in EVERY if len(text) > 1 and random.random() < 1 / 3)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in DEAR])
def test_a_reply_fails_where_plain_decoding_does(form: str) -> None:
    of = "rows" if form in ROWS else "drafter" if form in OF_DRAFTER else "grammar"
    assert error(random_bad(0), form, of=of) < 1e-9


@pytest.mark.nightly
@pytest.mark.parametrize("of", ["grammar", "rows", "drafter"])
@pytest.mark.parametrize("form", FORMS)
def test_it_does_with_a_failure_after_each_text(form: str, of: Of) -> None:
    for text in EVERY:
        assert error(frozenset([text]), form, of=of) < 1e-9, text
    for seed in range(1, 5):
        assert error(random_bad(seed), form, of=of) < 1e-9


class Unguarded(Sampler):
    """Wrong: a drafter's failure is raised through all that it drew."""

    q_draft = Sampler.distribution


class ThrowsAway(FaultGuard):
    """Wrong: a draft along which the grammar fails is none."""

    def propose(
        self, history: Sequence[int], limit: int, n_vocab: int, keep_on: KeepOn | None = None
    ) -> Draft:
        try:
            return self.drafter.propose(history, limit, keep_on)
        except ConstraintError:
            return NO_DRAFT


@pytest.mark.parametrize("form", ["line", "sampled"])
def test_control_a_draft_thrown_away_for_what_was_drawn_is_found(form: str) -> None:
    assert error(random_bad(0), form, ThrowsAway, Unguarded) > 1e-3


@pytest.mark.parametrize("form", ["line", "sampled"])
def test_control_a_failure_at_a_token_that_is_rejected_is_found(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule asks along the whole draft, and what fails there ends the reply."""
    asked = Sampler.distribution
    monkeypatch.setattr(warped_rows, "_distribution", asked)
    assert error(random_bad(0), form, of="rows") > 1e-3


@pytest.mark.parametrize("form", ["line", "certain tree"])
def test_control_accepted_tokens_lost_by_a_failure_after_them_are_found(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted = target_pass._emitted

    def loses(
        rows: Logits,
        sampler: Sampler,
        history: Sequence[int],
        accepted: tuple[int, ...],
        next_token: int,
    ) -> tuple[tuple[int, ...], int]:
        if next_token == warped_rows.NOTHING:
            raise ConstraintError("too many states")
        return emitted(rows, sampler, history, accepted, next_token)

    monkeypatch.setattr(target_pass, "_emitted", loses)
    assert error(random_bad(0), form) > 1e-3


def test_the_enumerated_case_of_two_tokens() -> None:
    """p = q = (1/2, 1/2), and the grammar fails after token 0: both are said alike often."""
    assert error(frozenset({(token, 0) for token in range(N_VOCAB)}), "line") < 1e-9
