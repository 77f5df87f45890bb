"""How far drafters agree with what a model said, on tables that tell it exactly."""

from collections.abc import Callable

import numpy as np
import pytest

from decoding.checks.agreement import Agreement, Reply, spoken
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings, warp

SETTINGS = SamplingSettings(temperature=0.8, seed=3)
LIMITS = Limits(20, frozenset())
N_VOCAB = 6


def replies(context) -> list[Reply]:
    prompts = ([1, 2, 3, 1], [1, 2, 3, 4, 5])
    return [spoken(context, prompt, SETTINGS, LIMITS) for prompt in prompts]


def test_a_model_accepts_all_of_its_own(table: Callable, fake_context: Callable) -> None:
    target, drafter = (fake_context(table(3), n_chunk=8) for _ in range(2))
    agreement = Agreement(target, replies(target), N_VOCAB, SETTINGS)
    assert agreement.acceptance(drafter) == pytest.approx(1.0)


def test_acceptance_is_the_mean_overlap_at_every_place(
    table: Callable, fake_context: Callable
) -> None:
    target, drafter = fake_context(table(3), n_chunk=8), fake_context(table(4), n_chunk=8)
    said = replies(target)
    overlaps: list[float] = []
    for reply in said:
        for place in range(len(reply.said)):
            text = [*reply.prompt, *reply.said[:place]]
            p_target = warp(target.row(text), SETTINGS)
            q_draft = warp(drafter.row(text), SETTINGS)
            overlaps.append(sum(min(p_target.of(x), q_draft.of(x)) for x in range(N_VOCAB)))
    found = Agreement(target, said, N_VOCAB, SETTINGS).acceptance(drafter)
    assert found == pytest.approx(np.mean(overlaps))
    assert 0.0 < found < 0.99


def test_what_prompts_share_is_read_once(table: Callable, fake_context: Callable) -> None:
    target, drafter = fake_context(table(3)), fake_context(table(4))
    said = replies(target)
    Agreement(target, said, N_VOCAB, SETTINGS).acceptance(drafter)
    whole = sum(len(reply.prompt) + len(reply.said) - 1 for reply in said)
    assert sum(drafter.forwards) == whole - 3


def test_a_token_costs_what_it_takes_beside_a_plain_step(
    table: Callable, fake_context: Callable
) -> None:
    now = 0.0
    target, drafter = fake_context(table(3)), fake_context(table(4))

    class Slow:
        """A context whose passes take time on the clock of this test."""

        def __init__(self, context, seconds: float) -> None:
            self._context, self._seconds = context, seconds

        def forward(self, tokens, n_logits):
            nonlocal now
            now += self._seconds
            return self._context.forward(tokens, n_logits)

        def __getattr__(self, name: str):
            return getattr(self._context, name)

    slow, quick = Slow(target, 0.02), Slow(drafter, 0.005)
    agreement = Agreement(slow, replies(slow), N_VOCAB, SETTINGS, clock=lambda: now)  # pyright: ignore
    assert agreement.draw_cost(quick) == pytest.approx(0.25)  # pyright: ignore
    assert slow.tokens == quick.tokens  # both as they were before the timed passes
