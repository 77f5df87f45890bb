"""Heads that were fitted: the engine computes what was trained, and they are really accepted."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from backends.llamacpp import LlamaContext
from backends.llamacpp.heads.head import load_head
from backends.llamacpp.model import LlamaModel
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.trees import DynamicTree
from decoding.estimation.cost import TreeSize
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from scripts.heads import fit_eagle3
from scripts.heads.eagle3_layer import Weights, forward
from scripts.heads.fit_eagle3 import (
    Reply,
    Source,
    drafted_tokens,
    prompts,
    replies,
    train,
    write_head,
)
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.heads import EAGLE3_TAPS
from tests.fixtures.tiny.kinds import Tiny

GREEDY = SamplingSettings(temperature=0.0)
N_CTX, PROMPTS, TOKENS, EPOCHS = 256, 12, 48, 40
LIMITS = Limits(TOKENS, frozenset())
HALF_FLOATS = 0.02
"""Of logits of 6: weights and the cache are half floats in the file. 0.004 was found."""


@dataclass(frozen=True)
class Fitted:
    """A head of the tiny llama, which knows its replies to a few prompts."""

    path: Path
    source: Source
    weights: Weights
    drafted: Sequence[int]
    heard: Sequence[Reply]


@pytest.fixture(scope="module")
def fitted(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    random = np.random.default_rng(3)
    asked = [random.integers(3, 354, 10).tolist() for _ in range(PROMPTS)]
    source = Source.of(tiny("llama"))
    with closing(llamacpp.load(tiny("llama"), threads=1)) as model:
        heard = list(replies(model, asked, EAGLE3_TAPS, TOKENS, source.width))
    drafted = drafted_tokens(heard, 4096, len(source.embeddings))
    *_, (_, weights) = train(source, heard, drafted, EPOCHS)
    path = tmp_path_factory.mktemp("fitted") / "head.gguf"
    write_head(path, source, weights, EAGLE3_TAPS, drafted)
    return Fitted(path, source, weights, drafted.tolist(), heard)


def test_the_engine_computes_what_was_trained(tiny: Tiny, fitted: Fitted) -> None:
    reply, source = fitted.heard[0], fitted.source
    tokens = reply.tokens.tolist()
    fused = reply.inputs[np.newaxis] @ fitted.weights["fc"].T
    embedded = source.embeddings[tokens[1:]][np.newaxis]
    ran = forward(fitted.weights, source.shape, embedded, fused)
    expected = ran.output[0] @ source.output[fitted.drafted].T
    with beside(tiny("llama"), fitted.path) as (context, opened, _):
        context.forward(tokens[:-1], 0)
        rows = opened.forward(tokens, len(tokens) - 1)
        assert np.abs(rows[:, fitted.drafted] - expected).max() < HALF_FLOATS


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_head_is_accepted_where_it_knows_the_reply(
    tiny: Tiny, fitted: Fitted, is_tree: bool
) -> None:
    with beside(tiny("llama"), fitted.path) as (context, opened, n_vocab):
        drafter = (
            DynamicTree("a", opened, TreeSize(3, 8), n_vocab=n_vocab)
            if is_tree
            else DraftModel("a", opened, n_vocab=n_vocab, max_draft=3)
        )
        found = [
            step
            for reply in fitted.heard
            for step in replied(
                context, reply.tokens[: reply.first].tolist(), GREEDY, LIMITS, drafter
            )
        ]
        assert sum(step.accepted for step in found) > 0.3 * len(said(found))


@contextmanager
def beside(target: Path, path: Path) -> Iterator[tuple[Context, Context, int]]:
    """A context of the model, one of a head that reads it, and the number of tokens."""
    with closing(llamacpp.load(target, threads=1)) as model, closing(model.open(N_CTX)) as context:
        assert isinstance(context, LlamaContext)
        with closing(load_head(path, model, context)) as head:
            yield context, head.open(N_CTX), model.info.n_vocab


@pytest.mark.slow
def test_a_head_of_the_bundled_model_is_accepted_where_it_knows_the_reply(
    demo: LlamaModel, tmp_path: Path
) -> None:
    """What longer fits reach on other prompts is in docs/reference/measurements.md."""
    path = tmp_path / "head.gguf"
    for _ in fit_eagle3.fit(demo, path, count=2, most=32, epochs=12, vocabulary=512):
        pass
    found = fit_eagle3.acceptance(demo, path, fit_eagle3.line, prompts(demo, 2), most=32)
    first, second, *_ = found.accepted_by_position
    assert first > 0.3
    assert second > 0.1
