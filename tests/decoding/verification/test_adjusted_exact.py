"""Logit bias and penalties of a reply: exact for every form of draft, by enumeration.

The law is computed anew here, from the definitions. Wrong ways to count must be caught. Without
either, the real pass over a context is enumerated too.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import (
    Draft,
    Form,
    PointMassLine,
    PointMassTree,
    SampledLine,
    TreeWithoutReplacement,
)
from decoding.events import Rule
from decoding.sampling.distribution import Distribution, warp
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from decoding.verification.rules import without
from decoding.verification.target_pass import judge, settle
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    Path,
    Prefix,
    Rows,
    draw,
    random_rows,
)
from tests.fixtures.one_step import distance_and_accepted

pytestmark = pytest.mark.usefixtures("symbolic")

PROMPT = (0, 2, 2)
REPLIED = (1,)
ADJUSTED = SamplingSettings(
    0.8,
    top_k=2,
    top_p=1.0,
    min_p=0.0,
    presence_penalty=0.7,
    frequency_penalty=-1.1,
    logit_bias=((1, 1.9), (2, -1.4)),
)
BANNED = replace(ADJUSTED, logit_bias=((2, -100.0), (0, 1.5)), repeat_penalty=1.3)


FormWith = Callable[[Rows, Path], Form]
SamplerOf = Callable[[SamplingSettings], Sampler]


def expected(row: NDArray[np.float32], settings: SamplingSettings, reply: Prefix) -> Distribution:
    """The law by OpenAI's formula, over the tokens of the reply alone; then truncation."""
    counts, biases, scores = Counter(reply), dict(settings.logit_bias), list[float]()
    for token, logit in enumerate(row.tolist()):
        score = logit + biases.get(token, 0.0)
        if token in (*PROMPT, *reply):
            penalty = settings.repeat_penalty
            score = score / penalty if score > 0 else score * penalty
        score -= settings.frequency_penalty * counts[token]
        score -= settings.presence_penalty * (counts[token] > 0)
        scores.append(-math.inf if biases.get(token) == -100.0 else score)
    plain = SamplingSettings(settings.temperature, settings.top_k, settings.top_p, settings.min_p)
    return warp(np.array(scores, dtype=np.float32), plain)


def certain_line(q_draft: Rows, path: Path) -> PointMassLine:
    return PointMassLine((1, 1, 0))


def sampled_line(q_draft: Rows, path: Path) -> SampledLine:
    first = draw(q_draft(()), path)
    second = draw(q_draft((first,)), path)
    return SampledLine((first, second), (q_draft(()), q_draft((first,))))


def certain_tree(q_draft: Rows, path: Path) -> PointMassTree:
    return PointMassTree((1, 0, 1, 0), (-1, -1, 0, 2))


def sampled_tree(q_draft: Rows, path: Path) -> TreeWithoutReplacement:
    """Two children drawn without replacement, the second of which has one below it."""
    law = q_draft(())
    first = draw(law, path)
    rest = without(law, first)
    assert rest is not None
    second = draw(rest, path)
    below = q_draft((second,))
    tokens = (first, second, draw(below, path))
    return TreeWithoutReplacement(tokens, (-1, -1, 1), (law, law, below))


FORMS = [certain_line, sampled_line, certain_tree, sampled_tree]
Distance = Callable[..., float]


def right(settings: SamplingSettings) -> Sampler:
    return Sampler(settings, prompt_tokens=len(PROMPT))


@pytest.fixture
def distance(table: Callable[..., Any], fake_context: Callable[..., Any]) -> Distance:
    """How far a drafted step, then plain ones, are from the law, in total variation."""

    def of(
        form_with: FormWith, settings: SamplingSettings, seed: int, sampler_of: SamplerOf = right
    ) -> float:
        rows, q_draft = table(seed, N_VOCAB), random_rows(seed + 100, DENSE)

        def target(prefix: Prefix) -> Distribution:
            text = [*PROMPT, *REPLIED, *prefix]
            return expected(rows[text[-2], text[-1]], settings, (*REPLIED, *prefix))

        def step(prefix: Prefix, path: Path) -> Prefix:
            context, sampler, history = fake_context(rows), sampler_of(settings), [*PROMPT, 1]
            context.forward(history[:-1], 0)
            object.__setattr__(sampler, "verification", path)
            form = form_with(q_draft, path)
            draft = Draft(form, "any", (0.5,) * len(form.tokens))
            path.is_ending = form.rule is not Rule.SAMPLE_MATCH  # that one draws at each position
            judged = judge(context, history, draft, sampler, lambda: 0.0)
            settle(context, len(history), judged, len(judged.accepted))
            return (*judged.accepted, judged.next_token)

        return distance_and_accepted(step, target, 4)[0]

    return of


@pytest.mark.parametrize("settings", [ADJUSTED, BANNED])
@pytest.mark.parametrize("form_with", FORMS)
def test_a_drafted_step_leaves_the_law_of_bias_then_penalties_then_truncation(
    distance: Distance, form_with: FormWith, settings: SamplingSettings
) -> None:
    for seed in range(2):
        assert distance(form_with, settings, seed) < 1e-6  # rows are float32


class BlindToTheDraft(Sampler):
    """Wrong: what was drafted before a position is not counted there."""

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        return super().distribution(logits, history)


class AfterTruncation(Sampler):
    """Wrong: the penalties weigh down what truncation has left."""

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        left = warp(logits, replace(self.settings.elsewhere, temperature=1.0))
        row = np.full_like(logits, -np.inf)
        row[left.ids] = logits[left.ids]
        return super().distribution(row, history, drafted)


def counting_the_prompt(settings: SamplingSettings) -> Sampler:
    return Sampler(settings)


def blind(settings: SamplingSettings) -> Sampler:
    return BlindToTheDraft(settings, prompt_tokens=len(PROMPT))


def too_late(settings: SamplingSettings) -> Sampler:
    return AfterTruncation(settings, prompt_tokens=len(PROMPT))


@pytest.mark.parametrize("form_with", FORMS)
@pytest.mark.parametrize("wrong", [counting_the_prompt, blind, too_late])
def test_wrong_ways_to_count_are_caught(
    distance: Distance, form_with: FormWith, wrong: SamplerOf
) -> None:
    assert max(distance(form_with, ADJUSTED, seed, wrong) for seed in range(3)) > 1e-3


@pytest.mark.parametrize("form_with", [sampled_line, sampled_tree])
@pytest.mark.parametrize("seed", range(2))
def test_a_pass_over_what_was_drawn_leaves_the_law_of_the_target(
    table: Callable[..., Any],
    fake_context: Callable[..., Any],
    form_with: Callable[[Rows, Path], Form],
    seed: int,
) -> None:
    rows, q_draft = table(seed, N_VOCAB), random_rows(seed + 100, DENSE)

    def target(prefix: Prefix) -> Distribution:
        text = [0, *prefix]
        row = rows[text[-2] if len(text) > 1 else -1, text[-1]]
        return Sampler(DENSE).distribution(row, text)

    def step(prefix: Prefix, path: Path) -> Prefix:
        context, sampler = fake_context(rows), Sampler(DENSE)
        object.__setattr__(sampler, "verification", path)
        form = form_with(q_draft, path)
        draft = Draft(form, "any", (0.5,) * len(form.tokens))
        path.is_ending = True
        judged = judge(context, [0], draft, sampler, lambda: 0.0)
        settle(context, 1, judged, len(judged.accepted))
        assert context.tokens == [0, *judged.accepted]
        assert context.forwards == [1 + len(draft)]
        return (*judged.accepted, judged.next_token)

    assert distance_and_accepted(step, target, 3)[0] < 1e-9
