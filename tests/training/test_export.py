"""Heads that were trained: engines compute what was trained, and they are really accepted."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from app.training.answers import Asked, answer, open_harvest
from backends import llamacpp
from backends.files.head_folders.head_folder import drafter_in_folder
from decoding.drafters.draft_model import DraftModel
from decoding.generation import Limits
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.replied import replied, said
from tests.fixtures.taught import cache_of, net_of, sample, source
from tests.fixtures.tiny.beside import beside
from tests.fixtures.tiny.eagle3_reference import Eagle3Reference
from tests.fixtures.tiny.head_folder import parts_of_folder
from tests.fixtures.tiny.heads import EAGLE3_TAPS
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.twins import twin
from tests.training.conftest import opened
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import read_source
from training.trainer import train, weights_of

N_CTX, PROMPTS, TOKENS = 256, 12, 48
GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(TOKENS, frozenset())
SETTINGS = TrainSettings(
    method="eagle3", steps=120, batch_tokens=256, vocabulary=300, rate=1e-2, noise=0.0
)
ROUNDED = 0.15
"""Of logits of 10: matrices have eight bits in the file. 0.06 was found."""


@dataclass(frozen=True)
class Fitted:
    """A head of the tiny llama, which knows its answers to a few prompts."""

    folder: Path
    net: Any
    weights: dict[str, Any]
    cache: SampleCache


@pytest.fixture(scope="module", params=["mlx", "torch"])
def fitted(
    request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory
) -> Fitted:
    arrays, folder = opened(request.param), tmp_path_factory.mktemp("fitted")
    target = read_source(tiny("llama"))
    cache = SampleCache(folder / "samples")
    random = np.random.default_rng(3)
    asked = [
        Asked(str(number), "any", tuple(random.integers(3, 354, 10).tolist()), 0.0, number)
        for number in range(PROMPTS)
    ]
    with (
        closing(llamacpp.load(tiny("llama"), threads=1)) as model,
        closing(open_harvest(model, N_CTX, 4, EAGLE3_TAPS)) as harvest,
    ):
        list(answer(harvest, asked, cache, frozenset(), stop=bool, most=TOKENS))
    net: Any = net_of(cache, SETTINGS, arrays, target)
    net.taps = EAGLE3_TAPS
    list(train(net, cache, folder / "run"))
    weights = weights_of(folder / "run")
    net.write(weights, folder / "head")
    on_device = {name: arrays.array(values) for name, values in weights.items()}
    return Fitted(folder / "head", net, on_device, cache)


def first(net: Any, weights: Any, text: Any) -> Any:
    """Logits of the first drafted token at each place."""
    return net.arrays.numpy(next(net.logits(weights, net.prepared([text], None))))[0]


@pytest.mark.slow
def test_llamacpp_computes_what_was_trained(tiny: Tiny, fitted: Fitted) -> None:
    sample, net = fitted.cache.sample(0), fitted.net
    expected = first(net, fitted.weights, sample)
    tokens = sample.tokens.tolist()
    with (
        closing(llamacpp.load(tiny("llama"), threads=1)) as model,
        beside(model, fitted.folder / "head.gguf") as (context, head),
    ):
        reader = head.open(N_CTX)
        context.forward(tokens[:-1], 0)
        rows = reader.forward(tokens, len(tokens) - 1)
        found = rows[:, net.vocabulary.drafted]
        assert np.abs(found - expected).max() < ROUNDED
        others = np.delete(rows, net.vocabulary.drafted, axis=1)
        assert np.isneginf(others).all()


@pytest.mark.slow
def test_mlx_computes_what_was_trained(tiny: Tiny, fitted: Fitted, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from backends import mlx
    from backends.mlx.heads.head import load_head

    sample, net = fitted.cache.sample(0), fitted.net
    expected = first(net, fitted.weights, sample)
    tokens = sample.tokens.tolist()
    with (
        closing(mlx.load(twin(tiny("llama"), tmp_path / "target"))) as model,
        closing(model.open(N_CTX)) as context,
        closing(load_head(fitted.folder, model, context)) as head,
    ):
        reader = head.open(N_CTX)
        context.forward(tokens[:-1], 0)
        rows = reader.forward(tokens, len(tokens) - 1)
        assert np.abs(rows[:, net.vocabulary.drafted] - expected).max() < ROUNDED


@pytest.mark.slow
def test_a_head_is_accepted_where_it_knows_the_answer(tiny: Tiny, fitted: Fitted) -> None:
    samples = [fitted.cache.sample(number) for number in range(4)]
    with (
        closing(llamacpp.load(tiny("llama"), threads=1)) as model,
        beside(model, fitted.folder / "head.gguf") as (context, head),
    ):
        drafter = DraftModel("a", head.open(N_CTX), n_vocab=model.info.n_vocab, max_draft=3)
        found = [
            step
            for sample in samples
            for step in replied(
                context, sample.tokens[: sample.first].tolist(), GREEDY, LIMITS, drafter
            )
        ]
        assert sum(step.accepted for step in found) > 0.08 * len(said(found))  # 0.003 by chance


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes an untrained head of a made-up model; settings by name."""

    def write(arrays: Any, method: str, **others: Any) -> tuple[Path, Any, dict[str, Any]]:
        cache = cache_of(tmp_path / "samples")
        settings = TrainSettings(method=method, steps=1, vocabulary=80, **others)
        net: Any = net_of(cache, settings, arrays, source(tmp_path))
        weights = net.first_weights()
        folder = tmp_path / "written"
        net.write(weights, folder)
        on_device = {name: arrays.array(values) for name, values in weights.items()}
        return folder, net, on_device

    return write


@pytest.mark.parametrize("library", ["mlx", "torch"])
def test_a_published_folder_holds_what_was_trained(library: str, written: Any) -> None:
    folder, net, weights = written(opened(library), "eagle3")
    found = drafter_in_folder(folder)
    assert found is not None
    assert not found.fault
    parts = parts_of_folder(folder)
    tensors = parts.tensors
    text = sample(40)
    expected = first(net, weights, text)
    named = {**tensors, "embed_tokens.weight": net.source.embeddings}
    states = text.states[:, :-1].reshape(len(text.tokens), -1).astype(np.float64)
    rows = Eagle3Reference(parts.settings, named).logits(text.tokens.tolist(), states[:-1])
    np.testing.assert_allclose(rows, expected, atol=0.05)
    ids = tensors["d2t"] + np.arange(len(tensors["d2t"]))
    np.testing.assert_array_equal(ids, net.vocabulary.drafted)
    np.testing.assert_array_equal(np.flatnonzero(tensors["t2d"]), ids)
