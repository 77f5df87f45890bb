"""The guess before the first draft: how far two models would say the same."""

from collections.abc import Callable

import numpy as np
import pytest

from decoding.estimation.trial import MOST_SAID, guess_of, trial
from decoding.sampling.distribution import SamplingSettings, warp

TEXT = [1, 2, 3, 4, 5] * 4
BANDS = {"greedy": 0.0, "cool": 0.4, "warm": 0.8, "hot": 1.0}


def shares(acceptance) -> dict[str, float]:
    counts = acceptance.counts()
    assert set(counts) == {f"{band}:drawn" for band in BANDS}
    return {kind.split(":")[0]: right / judged for kind, (right, judged) in counts.items()}


def test_a_model_agrees_with_itself(table: Callable, fake_context: Callable) -> None:
    target, drafter = (fake_context(table(3), n_chunk=8) for _ in range(2))
    found = shares(trial(target, guess_of(drafter, 6), TEXT, 6))
    assert all(share == pytest.approx(1.0) for share in found.values())
    assert target.tokens == []


def test_the_guess_is_the_mean_overlap_on_the_targets_own_words(
    table: Callable, fake_context: Callable
) -> None:
    target, drafter = fake_context(table(3), n_chunk=8), fake_context(table(4), n_chunk=8)
    found = shares(trial(target, guess_of(drafter, 6), TEXT, 6, clock=lambda: 0.0))
    text = list(TEXT)
    for _ in range(MOST_SAID):
        text.append(int(target.row(text).argmax()))
    for band, temperature in BANDS.items():
        settings = SamplingSettings(temperature=temperature)
        overlaps = []
        for end in range(1 + len(TEXT), len(text)):
            p_target = warp(target.row(text[:end]), settings)
            q_draft = warp(drafter.row(text[:end]), settings)
            overlaps.append(sum(min(p_target.of(x), q_draft.of(x)) for x in range(6)))
        assert found[band] == pytest.approx(np.mean(overlaps))
        assert 0.0 <= found[band] < 1.0


def test_a_slow_target_says_less(table: Callable, fake_context: Callable) -> None:
    readings = iter(range(100))
    target, drafter = fake_context(table(3)), fake_context(table(4))
    trial(target, guess_of(drafter, 6), TEXT, 6, clock=lambda: float(next(readings)))
    assert target.forwards.count(1) == 6


def test_a_drafter_of_another_vocabulary_is_asked_at_each_word(
    table: Callable, fake_context: Callable
) -> None:
    """One that would say what the target says, or nothing at every other word."""
    target, own = fake_context(table(3), n_chunk=8), fake_context(table(3))
    asked: list[list[int]] = []

    def guess(history):
        asked.append(list(history))
        row = own.row(asked[-1])
        return (lambda settings: warp(row, settings)) if len(asked) % 2 else None

    found = shares(trial(target, guess, TEXT, 6, clock=lambda: 0.0))
    assert all(share == pytest.approx(16 / 31) for share in found.values())
    assert [len(history) for history in asked] == [*range(1 + len(TEXT), len(TEXT) + MOST_SAID)]
    assert asked[-1][: len(asked[-2])] == asked[-2]
    assert target.tokens == []


def test_a_head_drafts_before_its_model_passes_the_last_token(
    table: Callable, fake_context: Callable
) -> None:
    """As for an answer: it may read what the model's passes left, and that alone."""
    target, head = fake_context(table(3), n_chunk=8), fake_context(table(3), n_chunk=8)
    forward, lengths = head.forward, []

    def reading(tokens, n_logits):
        rows = forward(tokens, n_logits)
        if n_logits:
            lengths.append((len(target.tokens), len(head.tokens)))
        return rows

    head.forward = reading
    found = shares(trial(target, guess_of(head, 6), TEXT, 6, clock=lambda: 0.0))
    assert all(share == pytest.approx(1.0) for share in found.values())
    assert lengths == [(len(TEXT) + n, len(TEXT) + n + 1) for n in range(MOST_SAID - 1)]
    assert target.tokens == []
