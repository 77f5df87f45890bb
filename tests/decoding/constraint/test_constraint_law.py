"""Speculative output under a constraint has the law of masking, then warping, then sampling.

Every outcome of the real loop over the real matcher is enumerated and compared with a law that is
worked out from the language itself: all its texts are listed. Wrong variants must be found.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import ModelError
from decoding import generation
from decoding.constraint.constraint import Mask, Reasoning, ThinkingBudget
from decoding.constraint.divisions import Divisions
from decoding.constraint.matcher import MatcherConstraint, Walker
from decoding.draft import Draft, Drafter, KeepOn
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.forced_tokens import ForcedTokens
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import Distribution, SamplingSettings, warp
from decoding.sampling.sampler import Sampler
from tests.fixtures.branching import MAKERS, PROMPT, Make
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SPARSE,
    Path,
    Prefix,
    Rows,
    draw,
    law_of,
    total_variation,
)
from tests.fixtures.forms import certain, certain_tree
from tests.fixtures.loop_law import sampler_along
from tests.fixtures.pieces import END, Pieces, constraint_on

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

pytestmark = pytest.mark.usefixtures("symbolic_loop")

Open = Callable[..., "FakeContext"]
Table = Callable[..., NDArray[np.float32]]
Constrain = Callable[[], MatcherConstraint]

LENGTH = 3
PENALISED = SamplingSettings(0.8, 0, 1.0, 0.0, repeat_penalty=1.4)

SPLIT = Pieces([b"a", b"b", b"ab"]), "(ab|ba|aab)*"
"""Texts without an end, with several divisions into tokens."""

FORCED = SPLIT[0], "(bab)*"
"""Texts most of which are certain."""

ENDING = Pieces([b"a", b"b", END]), "a?b{1,2}a{0,2}"
"""Texts that end within the first tokens."""


@cache
def texts(grammar: str) -> frozenset[str]:
    """All texts of a language that are short enough to matter."""
    words = ("".join(letters) for size in range(11) for letters in product("ab", repeat=size))
    return frozenset(word for word in words if re.fullmatch(grammar, word))


@cache
def beginnings(grammar: str) -> frozenset[str]:
    return frozenset(text[:end] for text in texts(grammar) for end in range(len(text) + 1))


def by_hand(pieces: Pieces, grammar: str, said: Prefix) -> list[bool]:
    """Which tokens may follow, by the list of all texts."""
    text = pieces.text(said).decode()
    return [
        text in texts(grammar)
        if token in pieces.end_tokens
        else text + piece.decode() in beginnings(grammar)
        for token, piece in enumerate(pieces.pieces)
    ]


def target_law(
    target: "FakeContext", pieces: Pieces, grammar: str, sampling: SamplingSettings
) -> Rows:
    """Masking, then warping."""

    def rows(said: Prefix) -> Distribution:
        if not pieces.end_tokens.isdisjoint(said):
            return Distribution(np.array([min(pieces.end_tokens)]), np.ones(1))
        text = [*PROMPT, *said]
        row = np.where(by_hand(pieces, grammar, said), target.row(text), -np.inf)
        return warp(row.astype(np.float32), sampling, text)

    return rows


def error(
    target: "FakeContext",
    drafter: Drafter,
    language: tuple[Pieces, str],
    sampling: SamplingSettings = DENSE,
    *,
    kind: type[Sampler] = Sampler,
    constrain: Constrain | None = None,
) -> float:
    """Total variation between the law of what the loop says and that of the target, constrained."""
    pieces, grammar = language
    constrain = constrain or partial(constraint_on, pieces, grammar)
    rows = target_law(target, pieces, grammar, sampling)

    def step(prefix: Prefix, path: Path) -> Prefix:
        if prefix:
            return (draw(rows(prefix), path),)
        said: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(generation, "Sampler", partial(sampler_along, path, kind=kind))
            events = generate(
                target,
                PROMPT,
                sampling,
                Limits(9, pieces.end_tokens),
                drafters=always(drafter),
                constraint=constrain(),
            )
            for event in events:
                if isinstance(event, Step):
                    said += event.tokens
                    if event.drafted or len(said) >= LENGTH:
                        break
        return tuple(said)

    law = law_of(step, LENGTH)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return total_variation(law, law_of(lambda prefix, path: (draw(rows(prefix), path),), LENGTH))


class Says(IdleDrafter):
    """Point masses, whatever may follow: a line, or a tree with some of its branches forbidden."""

    is_free = True

    def __init__(self, name: str, tokens: Sequence[int], parents: Sequence[int] = ()) -> None:
        self.name = name
        self._tokens, self._parents = tuple(tokens), tuple(parents)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        if self._parents:
            return certain_tree(self._tokens, self._parents, self.name)
        return certain(self._tokens[:limit], self.name)


def block(context: "FakeContext") -> DraftModel:
    return DraftModel("block", context, n_vocab=N_VOCAB, max_draft=2)


def say(*tokens: int, parents: Sequence[int] = ()) -> Make:
    return lambda _context: Says(f"says {tokens}", tokens, parents)


DRAFTERS: dict[str, Make] = {
    **MAKERS,
    "a line by the block rule": block,
    "point masses": say(0, 1),
    "point masses of another division": say(2, 0, 1),
    "a forbidden point mass": say(1, 1, 1),
    "a tree of point masses": say(0, 1, 2, 1, parents=(-1, -1, -1, 0)),
    "forced tokens": lambda _context: ForcedTokens(),
}


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(SPARSE, id="top-k"),
        pytest.param(DENSE, id="dense", marks=pytest.mark.slow),
        pytest.param(PENALISED, id="penalty", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("language", [SPLIT, ENDING, FORCED], ids=["split", "ending", "forced"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_the_loop_says_what_masking_then_warping_says(
    name: str,
    language: tuple[Pieces, str],
    sampling: SamplingSettings,
    table: Table,
    fake_context: Open,
) -> None:
    drafter = DRAFTERS[name](fake_context(table(7, N_VOCAB)))
    assert error(fake_context(table(3, N_VOCAB)), drafter, language, sampling) < 1e-9


LETTERS = ENDING[0]
BUDGETS = {
    "open": (2, Reasoning(b"", b"b", is_open=True), "a?|a{0,2}b[ab]*"),
    "a longer closing text": (1, Reasoning(b"", b"bb", is_open=True), "|a?bb[ab]*"),
    "opened by the reply": (1, Reasoning(b"a", b"b", is_open=False), "a?|b[ab]*|a{1,2}b[ab]*"),
    "what comes before it": (1, Reasoning(b"", b"b", True, b"a"), "|b[ab]*|ab[ab]*"),
}
"""Budgets of reasoning, and all texts that they leave; each letter is a token."""


def budgeted(kind: type[ThinkingBudget], name: str) -> ThinkingBudget:
    budget, reasoning, _ = BUDGETS[name]
    return kind(budget, reasoning, N_VOCAB, LETTERS.entry, LETTERS.spell)


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        *((name, "a longer closing text") for name in DRAFTERS),
        *(("a line by the block rule", budget) for budget in BUDGETS),
    ],
)
def test_a_budget_of_reasoning_leaves_the_law_of_the_tokens_that_may_follow(
    name: str, budget: str, table: Table, fake_context: Open
) -> None:
    drafter = DRAFTERS[name](fake_context(table(7, N_VOCAB)))
    constrain = cast("Constrain", partial(budgeted, ThinkingBudget, budget))
    target, language = fake_context(table(3, N_VOCAB)), (LETTERS, BUDGETS[budget][2])
    assert error(target, drafter, language, constrain=constrain) < 1e-9


class CountsOnlyWhatWasAccepted(ThinkingBudget):
    """Wrong: drafted tokens are not counted, so that a draft outruns the budget."""

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        return super().allowed(())


def test_a_budget_that_drafts_outrun_is_found(table: Table, fake_context: Open) -> None:
    constrain = cast("Constrain", partial(budgeted, CountsOnlyWhatWasAccepted, "open"))
    target, language = fake_context(table(3, N_VOCAB)), (LETTERS, BUDGETS["open"][2])
    assert error(target, say(0, 0, 0)(target), language, constrain=constrain) > 0.01


class MaskedAfterWarping(Sampler):
    """Wrong: the mask comes after top-k, which may have kept forbidden tokens in place of others.

    It is the law of drawing unmasked and drawing again after a miss.
    """

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        assert self.constraint is not None
        said = [*history[self.prompt_tokens + self.constraint.length :], *drafted]
        law, allowed = warp(logits, self.settings), self.constraint.allowed(said)
        if allowed is None or not allowed[law.ids].any():
            return super().distribution(logits, history, drafted)
        left = np.where(allowed[law.ids], law.probabilities, 0.0)
        return Distribution(law.ids, left / left.sum())


class Injecting(MatcherConstraint):
    """Wrong: where the text is certain, its division into tokens is made certain too."""

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        mask, forced = super().allowed(drafted), self.forced(drafted, 1).tokens
        if mask is None or not forced:
            return mask
        only = np.zeros_like(mask)
        only[list(forced)] = True
        return only


class NotRolledBack(Walker):
    """Wrong: what was drafted stays consumed when it is rejected."""

    def walk(self, tokens: Sequence[int]) -> int:
        if list(tokens[: len(self._beyond)]) != self._beyond:
            self._beyond = list(tokens[: self.matcher.try_consume_tokens(list(tokens))])
            return len(self._beyond)
        return super().walk(tokens)


def wrong_constraint(
    language: tuple[Pieces, str],
    kind: type[MatcherConstraint] = MatcherConstraint,
    walker: type[Walker] = Walker,
) -> Constrain:
    def make() -> MatcherConstraint:
        right = constraint_on(*language)
        walkers = (walker(right._matched._make), right._forcing)
        return kind(*walkers, right._n_vocab, right._end_tokens)

    return make


def test_a_mask_after_top_k_is_found(table: Table, fake_context: Open) -> None:
    target, drafter = fake_context(table(3, N_VOCAB)), block(fake_context(table(7, N_VOCAB)))
    assert error(target, drafter, ENDING, SPARSE, kind=MaskedAfterWarping) > 1e-3
    assert error(target, drafter, ENDING, DENSE, kind=MaskedAfterWarping) < 1e-9, "the same there"


def test_an_injected_division_is_found(table: Table, fake_context: Open) -> None:
    target, language = fake_context(table(3, N_VOCAB)), FORCED
    assert error(target, ForcedTokens(), language) < 1e-9
    injecting = wrong_constraint(language, Injecting)
    assert error(target, ForcedTokens(), language, constrain=injecting) > 1e-3


def test_the_law_holds_whatever_division_was_learned(table: Table, fake_context: Open) -> None:
    """Here that a model writes `ab` as `a` and `b`, or `ba` as `b` and `ab`, though few do."""
    pieces, grammar = FORCED
    for learned in ([0], [1, 0, 1], [1, 2, 0]):

        def taught(said: Sequence[int] = tuple(learned)) -> MatcherConstraint:
            divisions = Divisions(pieces.pieces)
            for place, token in enumerate(said):
                divisions.learn(b"bab"[place:], token)
            return constraint_on(pieces, grammar, divisions=divisions)

        target = fake_context(table(3, N_VOCAB))
        assert error(target, ForcedTokens(), FORCED, constrain=taught) < 1e-9


def test_a_matcher_that_is_not_rolled_back_is_found(table: Table, fake_context: Open) -> None:
    target = fake_context(table(3, N_VOCAB))
    drafter = MAKERS["sampled"](fake_context(table(7, N_VOCAB)))
    wrong = wrong_constraint(SPLIT, walker=NotRolledBack)
    try:
        found = error(target, drafter, SPLIT, constrain=wrong)
    except ModelError:  # it holds what was said for forbidden
        found = 1.0
    assert found > 1e-3
