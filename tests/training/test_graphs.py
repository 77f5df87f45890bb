"""Graphs that learn compute what the engine computes, and what was learnt is in their files."""

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from backends.base import DraftUnavailableError
from tests.fixtures.tiny.beside import beside
from tests.fixtures.tiny.head_rows import line, read
from tests.fixtures.tiny.kinds import Tiny
from training.arrays import Arrays
from training.distil import Distilled
from training.files import Stored
from training.heads.next_token import NextToken
from training.samples import LIKELY, Sample
from training.settings import TrainSettings

TOKENS = [75, 98, 112, 130, 201, 44, 55, 66]
DRAFTED = 77


def settings(rank: int = 0) -> TrainSettings:
    return TrainSettings(method="distil", steps=1, rank=rank)


def logits(arrays: Arrays, drafter: Distilled, learnt: Stored) -> NDArray[np.float32]:
    weights = {name: arrays.array(one) for name, one in learnt.items()}
    embeddings, output = (
        arrays.array(one.astype(np.float32))
        for one in (drafter.source.embeddings[TOKENS], drafter.source.output)
    )
    states = drafter.after(weights, embeddings[None])
    normed = drafter.layers(weights).norm(states, "output_norm")
    return arrays.numpy(arrays.product(normed[0], output))


def engine_logits(path: Path) -> NDArray[np.float32]:
    llamacpp = pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    with closing(llamacpp.load(path, threads=1)) as model:
        return np.array(model.open(64).forward(TOKENS, len(TOKENS)))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_llama_says_what_it_says_in_the_engine(tiny: Tiny, arrays: Arrays, kind: str) -> None:
    drafter = Distilled(arrays, tiny(kind), settings())
    ours, theirs = logits(arrays, drafter, drafter.first_weights()), engine_logits(tiny(kind))
    np.testing.assert_allclose(ours, theirs, atol=0.02)


@pytest.mark.parametrize("rank", [0, 4])
def test_what_was_learnt_is_in_the_file(
    tiny: Tiny, arrays: Arrays, tmp_path: Path, rank: int
) -> None:
    drafter = Distilled(arrays, tiny("llama"), settings(rank))
    random = np.random.default_rng(0)
    learnt = {
        name: one + random.normal(0.0, 0.1, one.shape).astype(np.float32)
        for name, one in drafter.first_weights().items()
    }
    ours = logits(arrays, drafter, learnt)
    assert np.abs(ours - logits(arrays, drafter, drafter.first_weights())).max() > 1.0
    drafter.form = Type.F32
    drafter.write(learnt, tmp_path)
    np.testing.assert_allclose(engine_logits(tmp_path / "distilled.gguf"), ours, atol=0.03)


def test_a_file_takes_another_form(tiny: Tiny, arrays: Arrays, tmp_path: Path) -> None:
    drafter = Distilled(arrays, tiny("llama"), settings())
    drafter.write({}, tmp_path)
    assert (tmp_path / "distilled.gguf").stat().st_size < 0.2 * tiny("llama").stat().st_size
    engine_logits(tmp_path / "distilled.gguf")


def test_a_next_token_layer_drafts_as_in_the_engine(tiny: Tiny, arrays: Arrays) -> None:
    llamacpp = pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    path = tiny("qwen35")
    with (
        closing(llamacpp.load(path, threads=1)) as model,
        beside(model, path) as (context, head),
    ):
        drafts: Any = head.open(64)
        context.forward(TOKENS[:-1], 0)
        theirs = np.vstack([read(drafts, TOKENS), *line(drafts, [DRAFTED])])
        states = np.array(drafts._states.before(0, len(TOKENS)))[1:]
    net = NextToken(arrays, path, settings())
    text, shown = [*TOKENS, DRAFTED], np.zeros((len(TOKENS) + 1, LIKELY))
    states = np.vstack([states, np.zeros_like(states[:2])])[:, None]
    answer = Sample(
        "", 0.0, np.array(text), 1, states, shown.astype(np.int32), shown.astype(np.float32)
    )
    weights = {name: arrays.array(one) for name, one in net.first_weights().items()}
    told, last = net.states(weights, net.prepared([answer], None)), len(TOKENS) - 2
    rows = [net.layers(weights).norm(states[:, last], norm) for states, norm in islice(told, 2)]
    output = arrays.array(net.source.output.astype(np.float32))
    ours = arrays.numpy(arrays.product(arrays.ops.concatenate(rows, 0), output))
    np.testing.assert_allclose(ours, theirs, atol=0.02)


@pytest.mark.parametrize("kind", ["gemma4", "lfm2"])
def test_other_layers_are_refused(tiny: Tiny, arrays: Arrays, kind: str) -> None:
    with pytest.raises(DraftUnavailableError, match="those that can: llama"):
        Distilled(arrays, tiny(kind), settings())
    with pytest.raises(DraftUnavailableError, match="it has none"):
        NextToken(arrays, tiny(kind), settings())


def test_next_token_layers_of_experts_are_refused(tiny: Tiny, arrays: Arrays) -> None:
    with pytest.raises(DraftUnavailableError, match="those of glm4moe are not known"):
        NextToken(arrays, tiny("glm4moe"), settings())
