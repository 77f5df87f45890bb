"""Tokens sampled from the rows of a block, verified: the model's own law, by enumeration."""

from dataclasses import replace

import numpy as np
import pytest

from backends.base import Block
from backends.heads.head import after_likeliest, in_lattice, independent
from decoding.draft import SampledLine
from decoding.drafters import draft_model
from decoding.drafters.draft_model import BlockDraft
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.blocks import ScriptedBlocks
from tests.fixtures.enumeration import (
    DENSE,
    LOW_CONFIDENCE,
    N_VOCAB,
    SEEDS,
    SPARSE,
    DraftOf,
    Path,
    Prefix,
    SymbolicUniform,
    error_of_a_pass,
    random_rows,
)

LENGTH = 2
CANDIDATES = 2
KINDS = ("independent", "after likeliest", "lattice")

pytestmark = pytest.mark.usefixtures("symbolic")


def block_of(kind: str, seed: int, prefix: Prefix) -> Block:
    """Random rows that depend on the text before the block."""
    random = np.random.default_rng([seed, 1, len(prefix), *prefix])
    if kind == "lattice":
        ids = [random.permutation(N_VOCAB)[:CANDIDATES] for _ in range(LENGTH)]
        scores = random.normal(size=(LENGTH, CANDIDATES**2), scale=1.5)
        return in_lattice(np.hstack([ids, scores]).astype(np.float32), CANDIDATES, N_VOCAB)
    rows = random.normal(size=(LENGTH, N_VOCAB), scale=1.5).astype(np.float32)
    return independent(rows) if kind == "independent" else after_likeliest(rows)


def drafts_of(
    kind: str, seed: int, settings: SamplingSettings, monkeypatch: pytest.MonkeyPatch
) -> DraftOf:
    """Drafts of the real drafter, asked to end at a token of low confidence."""
    scripted = ScriptedBlocks(lambda text, _: block_of(kind, seed, tuple(text)), LENGTH)
    drafter = BlockDraft("block", scripted.context, n_vocab=N_VOCAB)

    def draft_of(prefix: Prefix, path: Path) -> SampledLine:
        monkeypatch.setattr(draft_model, "uniform", lambda _: SymbolicUniform(path))
        history = [0, *prefix]
        drafter.begin(history, Sampler(settings))
        draft = drafter.propose(history, LENGTH, lambda share, _: share >= LOW_CONFIDENCE)
        assert isinstance(draft.form, SampledLine)
        return draft.form

    return draft_of


@pytest.mark.parametrize("settings", [DENSE, SPARSE])
@pytest.mark.parametrize("kind", KINDS)
def test_the_law_is_the_models_own(
    kind: str, settings: SamplingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in SEEDS:
        draft_of = drafts_of(kind, seed, settings, monkeypatch)
        assert error_of_a_pass(random_rows(seed, settings), draft_of) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_ended_a_block_and_was_left_out_is_caught(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_end(prefix: Prefix, path: Path) -> SampledLine:
        line = draft_of(prefix, path)
        assert isinstance(line, SampledLine)
        kept = len(line.tokens) - (len(line.tokens) < LENGTH)
        return replace(line, tokens=line.tokens[:kept], distributions=line.distributions[:kept])

    errors: list[float] = []
    for seed in SEEDS:
        draft_of = drafts_of(kind, seed, DENSE, monkeypatch)
        errors.append(error_of_a_pass(random_rows(seed, DENSE), without_end))
    assert max(errors) > 1e-3


def test_rows_after_the_likeliest_end_with_another_token() -> None:
    rows = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0]], np.float32)
    after = after_likeliest(rows)
    drafted: list[int] = []
    for row, token in zip(rows, [1, 0, 2], strict=True):
        found = after(drafted)
        assert found is not None
        assert np.array_equal(found, row)
        drafted.append(token)
    assert after(drafted) is None, "the block ends"
    assert after([2]) is None


def test_a_lattice_scores_what_follows_each_candidate() -> None:
    ids, score = [5.0, 3.0], np.arange(8.0)
    lattice = np.array([[*ids, *score[:4]], [4.0, 5.0, *score[4:]]], np.float32)
    after = in_lattice(lattice, 2, 8)
    first = after([])
    assert first is not None
    assert {int(token): float(first[token]) for token in np.isfinite(first).nonzero()[0]} == {
        5: 0.0,
        3: 1.0,
    }
    second = after([3])
    assert second is not None
    assert (second[4], second[5]) == (6.0, 7.0), "the scores after the second candidate"
    assert after([4]) is None, "no candidate of its place"
    guessed = in_lattice(lattice, 2, 8, [3])([])
    assert guessed is not None
    assert np.array_equal(guessed, second)
