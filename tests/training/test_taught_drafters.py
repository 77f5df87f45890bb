"""What drafters learn from samples: more of what they draft stands, in the real engine."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.heads import saying_few
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import write_dense
from training.arrays import Arrays
from training.distil import Distilled
from training.heads.next_token import NextToken
from training.samples import LIKELY, Sample, SampleCache
from training.settings import TrainSettings
from training.trainer import train, weights_of

if TYPE_CHECKING:
    from backends.base import Context
    from backends.llamacpp import LlamaModel

PROMPT, LONG = 8, 40
ANSWERS = 24


def prompts(seed: int, count: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(70, 330, PROMPT).tolist() for _ in range(count)]


def answered(model: "LlamaModel", folder: Path, head: bool) -> SampleCache:
    """Greedy answers; head: with the states that the model's own layers read."""
    from backends.llamacpp.heads.head import load_head

    n_vocab = model.info.n_vocab
    width = 64
    cache = SampleCache(folder)
    context: Any = model.open(64)
    loaded = load_head(model.info.path, model, context) if head else None
    reader: Any = loaded.open(64) if loaded else None
    for number, prompt in enumerate(prompts(0, ANSWERS)):
        context.truncate(0)
        tokens = list(prompt)
        rows = np.zeros((LONG, n_vocab), np.float32)
        rows[PROMPT - 1] = context.forward(prompt, 1)[0]
        for place in range(PROMPT, LONG):
            tokens.append(int(rows[place - 1].argmax()))
            rows[place] = context.forward(tokens[-1:], 1)[0]
        states = np.zeros((LONG, width), np.float32)
        if reader:
            states = np.array(reader._states.rows(0, LONG))
        likely = np.argsort(-rows, axis=1)[:, :LIKELY].astype(np.int32)
        logs = rows - np.log(np.exp(rows).sum(1, keepdims=True))
        cache.add(
            Sample(
                str(number), 0.0, np.array(tokens, np.int32), PROMPT, states[:, None],
                likely, np.take_along_axis(logs, likely, 1),
            )
        )  # fmt: skip
    if loaded:
        loaded.close()
    context.close()
    return cache


def kept(model: "LlamaModel", context: "Context", drafter: Drafter, asked: Sequence[int]) -> int:
    """Tokens of drafts that stand in an answer to a prompt that was not trained on."""
    context.truncate(0)
    limits = Limits(LONG, model.tokenizer.end_tokens)
    events = generate(
        context, asked, SamplingSettings(0.0, seed=0), limits, drafters=always(drafter)
    )
    return sum(len(event.tokens) - 1 for event in events if isinstance(event, Step))


def settings(method: str) -> TrainSettings:
    return TrainSettings(method=method, steps=STEPS, rate=3e-3, batch_tokens=400)


def taught(net: Any, cache: SampleCache, folder: Path) -> Any:
    losses = [one.loss for one in train(net, cache, folder)]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    return weights_of(folder)


STEPS = 40


@pytest.mark.slow
def test_a_distilled_llama_is_accepted_more(tiny: Tiny, arrays: Arrays, tmp_path: Path) -> None:
    llamacpp = pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    target = saying_few(tiny("llama"), tmp_path / "target.gguf", "output")
    base = write_dense(tmp_path / "base.gguf", layers=2, seed=9)
    with closing(llamacpp.load(target, threads=1)) as model:
        cache = answered(model, tmp_path / "samples", head=False)
        net = Distilled(arrays, base, settings("distil"))
        net.write(taught(net, cache, tmp_path / "run"), tmp_path / "taught")
        context: Any = model.open(128)

        def total(path: Path) -> int:
            with closing(llamacpp.load(path, threads=1)) as small:
                drafter = DraftModel("own", small.open(128), n_vocab=model.info.n_vocab)
                return sum(kept(model, context, drafter, one) for one in prompts(1, 6))

        before, after = total(base), total(tmp_path / "taught" / "distilled.gguf")
    assert after > before + 20, (before, after)


@pytest.mark.slow
def test_a_models_own_layer_is_accepted_more(tiny: Tiny, arrays: Arrays, tmp_path: Path) -> None:
    llamacpp = pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    from backends.llamacpp.heads.head import load_head

    target = saying_few(tiny("qwen35"), tmp_path / "target.gguf", "output")
    with closing(llamacpp.load(target, threads=1)) as model:
        cache = answered(model, tmp_path / "samples", head=True)
        net = NextToken(arrays, target, settings("mtp"))
        net.write(taught(net, cache, tmp_path / "run"), tmp_path / "taught")
        context: Any = model.open(128)

        def total(path: Path) -> int:
            with closing(load_head(path, model, context)) as head:
                drafter = DraftModel("mtp", head.open(128), n_vocab=model.info.n_vocab)
                return sum(kept(model, context, drafter, one) for one in prompts(1, 6))

        before, after = total(target), total(tmp_path / "taught" / "mtp-target.gguf")
    assert after > before + 20, (before, after)
