"""Drafters of trees and of several lines: exact through the loop, where every outcome is counted.

One drafted step is enumerated, with the token before it; plain decoding follows. Drafters that
draw in wrong ways must fail the same enumeration.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding import generation
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, SampledLine, TreeWithoutReplacement
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import Distribution, SamplingSettings, warp
from tests.fixtures.branching import BUSHY, MAKERS, PROMPT
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SPARSE,
    Path,
    Prefix,
    law_of,
    plain,
    total_variation,
)
from tests.fixtures.forms import distributions_in
from tests.fixtures.loop_law import sampler_along

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Open = Callable[..., "FakeContext"]
Table = Callable[..., NDArray[np.float32]]

LENGTH = 3
NO_END: frozenset[int] = frozenset()
PENALISED = SamplingSettings(0.8, 0, 1.0, 0.0, repeat_penalty=1.4)
COUNTED = SamplingSettings(
    0.8,
    0,
    1.0,
    0.0,
    presence_penalty=0.7,
    frequency_penalty=1.1,
    logit_bias=((1, -100.0), (2, 0.5)),
)


def error(target: "FakeContext", drafter: Drafter, sampling: SamplingSettings) -> float:
    """Total variation between the law of what the loop says and the target's own."""

    def rows(prefix: Prefix) -> Distribution:
        text = [*PROMPT, *prefix]
        return warp(target.row(text), sampling, text, prefix)

    def step(prefix: Prefix, path: Path) -> Prefix:
        if prefix:
            return plain(rows)(prefix, path)
        said: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(generation, "Sampler", partial(sampler_along, path))
            for event in generate(
                target, PROMPT, sampling, Limits(9, NO_END), drafters=always(drafter)
            ):
                if isinstance(event, Step):
                    said += event.tokens
                    if event.drafted or len(said) >= LENGTH:
                        break
        return tuple(said)

    law = law_of(step, LENGTH)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return total_variation(law, law_of(plain(rows), LENGTH))


@pytest.mark.usefixtures("symbolic_loop")
@pytest.mark.parametrize("sampling", [DENSE, SPARSE, PENALISED, COUNTED])
@pytest.mark.parametrize("name", MAKERS)
def test_the_loop_says_what_the_target_says(
    name: str, sampling: SamplingSettings, table: Table, fake_context: Open
) -> None:
    drafter = MAKERS[name](fake_context(table(7, N_VOCAB)))
    assert error(fake_context(table(3, N_VOCAB)), drafter, sampling) < 1e-9


class Filled(DraftModel):
    """Its passes are filled up to the next width, and more is to be taken back then."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        return replace(draft, padding=(0, 0, 1)[len(draft)])


class DroppedForItsWidth(Filled):
    """Wrong: whether a line is sent depends on where it ended, and so on what was drawn."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        return NO_DRAFT if draft.padding else draft


@pytest.mark.usefixtures("symbolic_loop")
@pytest.mark.parametrize("kind", [Filled, DroppedForItsWidth])
def test_a_line_is_sent_whatever_it_would_be_filled_up_to(
    kind: type[Filled], table: Table, fake_context: Open
) -> None:
    drafting = fake_context(table(7, N_VOCAB))
    drafter = kind("model", drafting, n_vocab=N_VOCAB, end_tokens=frozenset({0}), max_draft=2)
    found = error(fake_context(table(3, N_VOCAB), depth=2), drafter, DENSE)
    assert (found < 1e-9) == (kind is Filled)


class WithoutWhatCameUpUnlikely(SampledTree):
    """Wrong: whether a child is drafted depends on which token it is."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        if draft.confidence[0] > 0.5:
            return draft
        form = TreeWithoutReplacement(draft.tokens[1:2], (-1,), distributions_in(draft)[1:2])
        return Draft(form, draft.drafter, draft.confidence[1:2], draft.evidence[1:2])


class InTheOrderOfLikelihood(SampledTree):
    """Wrong: children are handed on in another order than they were drawn in."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        first, second = sorted(zip(draft.confidence[:2], draft.tokens[:2], strict=True))
        tokens = (second[1], first[1])
        form = TreeWithoutReplacement(tokens, (-1, -1), distributions_in(draft)[:2])
        return Draft(form, draft.drafter, (second[0], first[0]), draft.evidence[:2])


class WithTheLawOfASingleLine(SeveralPaths):
    """Wrong: the line is handed on as if it had not been chosen."""

    def __init__(self, context: "FakeContext") -> None:
        super().__init__("wrong", context, 2, 2, n_vocab=N_VOCAB)
        self._model = context

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        text, laws = list(history), []
        for token in draft.tokens:
            laws.append(warp(self._model.row(text), DENSE))
            text.append(token)
        return replace(draft, form=SampledLine(draft.tokens, tuple(laws)))


@pytest.mark.usefixtures("symbolic_loop")
def test_controls_are_caught(table: Table, fake_context: Open) -> None:
    drafting = fake_context(table(7, N_VOCAB))
    wrong: list[Drafter] = [
        WithoutWhatCameUpUnlikely("wrong", drafting, BUSHY, n_vocab=N_VOCAB),
        InTheOrderOfLikelihood("wrong", drafting, BUSHY, n_vocab=N_VOCAB),
        WithTheLawOfASingleLine(drafting),
    ]
    for drafter in wrong:
        assert error(fake_context(table(3, N_VOCAB)), drafter, DENSE) > 1e-3
