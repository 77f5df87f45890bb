"""Caches of layers with a window: the same as mlx-lm's, and they can be rolled back past it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from backends import mlx as backend
from backends.base import Rollback
from backends.mlx.caches import WindowKVCache, make_caches, rollback_of, rollback_refusal
from tests.fixtures.mlx_models import N_VOCAB, WINDOW

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": N_VOCAB,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "sliding_window": WINDOW,
    "rope_theta": 10000.0,
}
WITH_WINDOW: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {
        "num_hidden_layers": 2,
        "sliding_window_pattern": 2,
        "rope_global_base_freq": 1e6,
        "rope_local_base_freq": 1e4,
        "query_pre_attn_scalar": 16,
    },
    "gpt_oss": {
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "cohere2": {"num_hidden_layers": 2, "sliding_window_pattern": 2},
    "olmo3": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": False,
    },
}


@pytest.fixture(params=sorted(WITH_WINDOW))
def windowed(request: pytest.FixtureRequest) -> Any:
    """A model of an architecture with windows, of random weights."""
    from mlx_lm.utils import _get_classes as classes_of  # pyright: ignore[reportPrivateUsage]

    config = SIZES | {"model_type": request.param} | WITH_WINDOW[request.param]
    model_class, arguments = classes_of(config)
    mx.random.seed(7)
    model = model_class(arguments.from_dict(config))
    mx.eval(model.parameters())
    return model


def logits(model: Any, caches: list[Any], tokens: list[int]) -> np.ndarray:
    rows = model(mx.array([tokens]), cache=caches)[0].astype(mx.float32)
    return np.array(rows)


def test_logits_are_those_of_the_library_past_the_window(windowed: Any) -> None:
    ours, theirs = make_caches(windowed), make_prompt_cache(windowed)
    assert any(isinstance(one, WindowKVCache) for one in ours)
    assert rollback_refusal(ours) == ""
    random = np.random.default_rng(3)
    for size in (WINDOW + 9, 1, 5, 1, 1, WINDOW, 2, 1):
        tokens = random.integers(0, N_VOCAB, size).tolist()
        expected, found = logits(windowed, theirs, tokens), logits(windowed, ours, tokens)
        assert np.abs(expected - found).max() < 1e-4
        assert (expected.argmax(axis=1) == found.argmax(axis=1)).all()


def test_a_short_prompt_grows_past_the_window_token_by_token(windowed: Any) -> None:
    ours, theirs = make_caches(windowed), make_prompt_cache(windowed)
    for token in range(WINDOW - 3, WINDOW + 4):
        size = WINDOW - 4 if token == WINDOW - 3 else 1
        tokens = [(token + place) % N_VOCAB for place in range(size)]
        difference = logits(windowed, theirs, tokens) - logits(windowed, ours, tokens)
        assert np.abs(difference).max() < 1e-4


def test_what_was_said_past_the_window_can_be_forgotten(windowed: Any) -> None:
    said, rejected, then = list(range(WINDOW + 20)), [250, 251, 252, 253], [7, 8, 9]
    caches, untouched = make_caches(windowed), make_caches(windowed)
    logits(windowed, caches, said)
    logits(windowed, caches, rejected)
    for one in caches:
        one.trim(len(rejected))
    logits(windowed, untouched, said)
    difference = logits(windowed, caches, then) - logits(windowed, untouched, then)
    assert np.abs(difference).max() < 1e-5


def test_full_caches_with_a_mask_equal_rotating_ones(small_mlx: Callable[..., Path]) -> None:
    """Greedy text well past the window, one token at a time, as mlx-lm itself decodes it."""
    model = backend.load(small_mlx("sliding"))
    tokens = np.random.default_rng(0).integers(3, N_VOCAB, WINDOW - 5).tolist()
    module = model.module
    assert module is not None
    caches = make_prompt_cache(module)
    assert any(isinstance(one, RotatingKVCache) for one in caches)
    theirs = list(tokens)
    rows = module(mx.array([tokens]), cache=caches)
    context, ours = model.open(256), list(tokens)
    own_rows = context.forward(tokens, 1)
    for _ in range(3 * WINDOW):
        assert np.abs(np.array(rows[0, -1]) - own_rows[-1]).max() < 1e-3
        theirs.append(int(mx.argmax(rows[0, -1])))
        ours.append(int(own_rows[-1].argmax()))
        assert ours == theirs
        rows = module(mx.array([theirs[-1:]]), cache=caches)
        own_rows = context.forward(ours[-1:], 1)
    assert len(set(ours[WINDOW:])) > 20, "text of a few tokens proves little"


def test_a_window_is_kept_where_the_architecture_does_not_tell_it() -> None:
    cache = WindowKVCache(4)
    assert cache.make_mask(1) is None
    assert cache.make_mask(4) == "causal"
    cache.offset = 4
    assert cache.make_mask(1).tolist() == [[False, True, True, True, True]]
    assert cache.make_mask(2).sum(axis=1).tolist() == [4, 4]
    assert cache.make_mask(1, window_size=2).sum().item() == 2


def test_a_layer_of_several_caches_is_rolled_back_where_all_of_them_can() -> None:
    from mlx_lm.models.cache import (
        ArraysCache,
        CacheList,
        ChunkedKVCache,
        KVCache,
        QuantizedKVCache,
    )

    assert rollback_refusal([CacheList(KVCache(), KVCache()), WindowKVCache(8)]) == ""
    assert rollback_of([CacheList(KVCache(), ArraysCache(1))]) is Rollback.BOUNDED
    assert "a kind of cache" in rollback_refusal([KVCache(), QuantizedKVCache()])
    assert "only the latest tokens" in rollback_refusal([KVCache(), ChunkedKVCache(8)])
