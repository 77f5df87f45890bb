"""The caches of small models: saved, restored, rolled back, and windows kept by the mask."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from backends import mlx
from backends.base import Context, ModelError, Rollback
from backends.mlx.model import MlxModel
from tests.fixtures.mlx_models import KINDS, N_VOCAB, WINDOW

RIGHT = ("plain", "sliding", "experts")
"""Kinds that can be rolled back at any length."""

ROUNDING = 1e-3
"""Passes over one token and over several add up in another order: logits are of the order of 10."""


@pytest.fixture
def loaded(small_mlx: Callable[..., Path]) -> Callable[[str], MlxModel]:
    return lambda kind: mlx.load(small_mlx(kind))


def text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, N_VOCAB, length).tolist()


def read(context: Context, tokens: list[int], piece: int = 16) -> np.ndarray:
    """Every row of logits after tokens, some at a time."""
    pieces = [tokens[start : start + piece] for start in range(0, len(tokens), piece)]
    return np.concatenate([context.forward(one, len(one)).copy() for one in pieces])


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_any_size_give_the_same_logits(kind: str, loaded: Callable[[str], MlxModel]):
    model, tokens = loaded(kind), text(3 * WINDOW)
    rows = [read(model.open(128), tokens, piece) for piece in (1, 7, 48)]
    assert rows[0].std() > 0.5
    for others in rows[1:]:
        assert np.abs(others - rows[0]).max() < ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_cache_goes_on_where_it_was_saved(kind: str, loaded: Callable[[str], MlxModel]):
    model, tokens, more = loaded(kind), text(2 * WINDOW), text(9, seed=1)
    context, other = model.open(128), model.open(128)
    read(context, tokens)
    state = context.save()
    expected = read(context, more)
    read(other, text(20, seed=2))
    other.restore(tokens, state)
    assert list(other.tokens) == tokens
    assert np.array_equal(read(other, more), expected)


@pytest.mark.parametrize("kind", RIGHT)
def test_what_is_rolled_back_leaves_nothing_behind(kind: str, loaded: Callable[[str], MlxModel]):
    """Past the window too, where a rotating cache would have lost what comes back into sight."""
    model, tokens, more = loaded(kind), text(2 * WINDOW), text(5, seed=1)
    assert model.info.rollback is Rollback.ANY
    context = model.open(128)
    read(context, tokens)
    expected = read(context, more)
    for rejected in (1, 15, WINDOW + 3):
        context.truncate(len(tokens))
        read(context, text(rejected, seed=rejected), WINDOW + 3)
        context.truncate(len(tokens))
        assert np.array_equal(read(context, more), expected)


@pytest.mark.parametrize("kind", RIGHT)
@pytest.mark.parametrize("length", [-1, 41, 1000])
def test_a_cut_past_the_end_is_an_error_and_changes_nothing(
    kind: str, length: int, loaded: Callable[[str], MlxModel]
):
    model, tokens, more = loaded(kind), text(40), text(5, seed=1)
    context, other = model.open(128), model.open(128)
    read(other, tokens)
    expected = read(other, more)
    read(context, tokens)
    with pytest.raises(ModelError, match="cannot be cut"):
        context.truncate(length)
    assert context.tokens == list(tokens)
    assert np.array_equal(read(context, more), expected)


def test_full_caches_with_a_mask_equal_rotating_ones(loaded: Callable[[str], MlxModel]):
    """Greedy text well past the window, one token at a time, as mlx-lm itself decodes it."""
    model, tokens = loaded("sliding"), text(WINDOW - 5)
    module = model.module
    assert module is not None
    caches = make_prompt_cache(module)
    assert any(isinstance(one, RotatingKVCache) for one in caches)
    theirs = list(tokens)
    rows = module(mx.array([tokens]), cache=caches)
    context, ours = model.open(256), list(tokens)
    own_rows = context.forward(tokens, 1)
    for _ in range(3 * WINDOW):
        assert np.abs(np.array(rows[0, -1]) - own_rows[-1]).max() < ROUNDING
        theirs.append(int(mx.argmax(rows[0, -1])))
        ours.append(int(own_rows[-1].argmax()))
        assert ours == theirs
        rows = module(mx.array([theirs[-1:]]), cache=caches)
        own_rows = context.forward(ours[-1:], 1)
    assert len(set(ours[WINDOW:])) > 20, "text of a few tokens proves little"
