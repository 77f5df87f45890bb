"""Heads that are trained: what they compute, what they learn from, and that they learn it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.taught import FIRST, METHODS, N_VOCAB, SHAPE, cache_of, net_of, sample, source
from tests.fixtures.tiny.eagle3_reference import Eagle3Reference
from tests.training.conftest import opened
from training.arrays import Arrays
from training.heads.eagle3 import PUBLISHED
from training.samples import LIKELY, SampleCache
from training.settings import TrainSettings
from training.teaching import Vocabulary

SLACK = 2e-4
"""Of logits of some tens, in other orders of summing."""


@pytest.fixture
def cache(tmp_path: Path) -> SampleCache:
    return cache_of(tmp_path / "samples")


def settings(method: str = "eagle3", **others: Any) -> TrainSettings:
    return TrainSettings(method=method, steps=60, **{"vocabulary": 80, "noise": 0.0, **others})


def trained(arrays: Arrays, net: Any, rate: float, batch: Any, steps: int) -> Iterator[float]:
    """Losses of plain descent, without the trainer."""
    weights = {name: arrays.array(values) for name, values in net.first_weights().items()}
    for _ in range(steps):
        loss, found = arrays.value_and_gradients(partial(net.loss, batch, 1.0), weights)
        yield loss
        length = sum(float((one * one).sum()) for one in found.values()) ** 0.5
        weights = {name: held - found[name] * (rate / length) for name, held in weights.items()}


def test_an_eagle3_head_computes_what_is_defined(arrays: Arrays, cache: SampleCache) -> None:
    """Also where it drafts on from its own states, which a shift or a wrong mask would change."""
    net: Any = net_of(cache, settings(), arrays, source())
    random = np.random.default_rng(3)
    weights = {
        name: values + random.normal(0.0, 0.1, values.shape).astype(np.float32)
        for name, values in net.first_weights().items()
    }
    text = sample(40)
    prepared = net.prepared([sample(30, 17), text], None)
    on_device = {name: arrays.array(values) for name, values in weights.items()}
    found = [arrays.numpy(one) for one in net.logits(on_device, prepared)]
    named: dict[str, Any] = {
        PUBLISHED.get(name) or name: one for name, one in net.for_file(weights).items()
    }
    rows = source().output[net.vocabulary.drafted], source().embeddings
    named |= {"lm_head.weight": rows[0], "embed_tokens.weight": rows[1]}
    told = {
        "num_attention_heads": SHAPE.heads, "num_key_value_heads": SHAPE.kv_heads,
        "rms_norm_eps": SHAPE.epsilon, "rope_theta": SHAPE.base,
    }  # fmt: skip
    reference = Eagle3Reference(told, named)
    states = text.states[:, :-1].reshape(len(text.tokens), -1).astype(np.float64)
    tokens = text.tokens.tolist()
    for place in range(len(tokens) - 4):
        for own in range(3):
            read = tokens[: place + 2 + own]
            wanted = reference.logits(read, states[: place + 1], own)[-1]
            np.testing.assert_allclose(found[own][1, place], wanted, atol=SLACK, rtol=SLACK)


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_is_that_of_the_tokens_that_follow(
    method: str, arrays: Arrays, cache: SampleCache
) -> None:
    """Of the token after the next one at a place, and by position of those after it."""
    net: Any = net_of(cache, settings(method), arrays, source())
    given = [sample(30, 17), sample(31)]
    certain = np.where(np.arange(LIKELY) < 1, 0.0, -1e3).astype(np.float32)
    sure = [replace(one, logs=np.tile(certain, (len(one.tokens), 1))) for one in given]
    prepared = net.prepared(sure, None)
    weights = {name: arrays.array(values) for name, values in net.first_weights().items()}
    wanted = 0.0
    for position, found in enumerate(net.logits(weights, prepared)):
        logits = arrays.numpy(found)
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row, one in enumerate(given):
            said = net.vocabulary.numbers[one.tokens]
            places = range(FIRST - 1, len(one.tokens) - 2 - position)
            losses = [
                -logs[row, place, said[place + 2 + position]]
                for place in places
                if said[place + 2 + position] >= 0
            ]
            wanted += 0.8**position * float(np.mean(losses)) / len(given)
    found, _ = arrays.value_and_gradients(partial(net.loss, prepared, 0.0), weights)
    assert found == pytest.approx(wanted, rel=1e-4)


OPTIONS: list[dict[str, Any]] = [{}, {"acceptance": 0.5}]


@pytest.mark.parametrize("others", OPTIONS, ids=str)
def test_losses_fall_with_each_option(
    others: dict[str, Any], arrays: Arrays, cache: SampleCache
) -> None:
    net: Any = net_of(cache, settings(**others), arrays, source())
    batch = net.prepared([sample(number) for number in range(4)], np.random.default_rng(0))
    first, *_, last = trained(arrays, net, 0.3, batch, 10)
    assert last < 0.9 * first


@pytest.mark.parametrize("method", METHODS)
def test_both_libraries_have_the_same_gradients(method: str, cache: SampleCache) -> None:
    """Under mlx in name: it runs where both are."""
    found = []
    for arrays in (opened("mlx"), opened("torch")):
        net: Any = net_of(cache, settings(method, acceptance=0.3), arrays, source())
        prepared = net.prepared([sample(number) for number in range(3)], np.random.default_rng(0))
        weights = {name: arrays.array(values) for name, values in net.first_weights().items()}
        loss, gradients = arrays.value_and_gradients(partial(net.loss, prepared, 1.0), weights)
        found.append((loss, {name: arrays.numpy(one) for name, one in gradients.items()}))
    (one, ours), (other, theirs) = found
    assert one == pytest.approx(other, rel=1e-5)
    for name, values in ours.items():
        largest = np.abs(values).max()
        np.testing.assert_allclose(values, theirs[name], atol=1e-4 * largest + 1e-7, err_msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_acceptance_is_rolled_out_on_the_heads_own_tokens(
    method: str, arrays: Arrays, cache: SampleCache
) -> None:
    """A draft from each place, computed anew for texts that hold what was drafted so far."""
    net: Any = net_of(cache, settings(method, vocabulary=N_VOCAB), arrays, source())
    weights = {name: arrays.array(values) for name, values in net.first_weights().items()}
    text, tokens, drafts = sample(40, 9), 0, 0
    for place in range(FIRST - 1, len(text.tokens) - 4):
        drafts += 1
        drafted = text.tokens.copy()
        for position in range(3):
            prepared = net.prepared([replace(text, tokens=drafted)], None)
            logits = next(islice(net.logits(weights, prepared), position, None))
            said = int(logits[0, place].argmax())
            told = int(net.vocabulary.drafted[said])
            if told != text.tokens[place + 2 + position]:
                break
            tokens += 1
            drafted[place + 2 + position] = told
    assert net.accepted(weights, net.prepared([text], None)) == (tokens, drafts)


def test_a_chat_does_not_choose_what_is_drafted(cache: SampleCache) -> None:
    held = [cache.sample(number) for number in range(len(cache))]
    public = [one for one in held if not one.is_private]
    assert len(public) < len(held)
    wanted, found = (Vocabulary.commonest(of, 40, N_VOCAB).drafted for of in (public, held))
    np.testing.assert_array_equal(found, wanted)
