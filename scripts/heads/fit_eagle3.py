"""Fit an EAGLE-3 head to the bundled model, and measure what it accepts.

Run: `python -m scripts.heads.fit_eagle3 HEAD.gguf`; an existing file is only measured.

The model answers prompts of the bench and requests about everyday topics; the head learns from the
inputs of three of its layers to say the token after the next one. Acceptance is measured on the
built-in prompts and on the same requests about other topics, none of which it has seen, with drafts
at every step whether they pay or not.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from backends import llamacpp
from backends.base import Context
from backends.llamacpp import LlamaContext, LlamaModel
from backends.llamacpp.heads.head import load_head
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.estimation.cost import TreeSize
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.stores.available_models import demo_path
from scripts.heads.head_file import Source, write_head
from scripts.heads.replies import prompts, replies, similar_prompts
from scripts.heads.training import drafted_tokens, train
from scripts.prompts import tokenized

TAPS = (2, 15, 28)
"""Layers whose inputs the head reads: after the first, in the middle, before the last."""

_N_CTX, _MEASURED = 1024, 64


def fit(
    model: LlamaModel, path: Path, *, count: int, most: int, epochs: int, vocabulary: int
) -> Iterator[str]:
    """Write a head for a model; yields what is done.

    count: prompts to be answered. most: tokens of a reply. vocabulary: tokens the head knows.
    """
    source = Source.of(model.info.path)
    started = time.perf_counter()
    asked = prompts(model, count)
    heard = list(replies(model, asked, TAPS, most, source.width))
    said = sum(len(reply.tokens) - reply.first for reply in heard)
    yield f"{len(heard)} replies, {said:,} tokens in {time.perf_counter() - started:.0f} s"
    drafted = drafted_tokens(heard, vocabulary, len(source.embeddings))
    started = time.perf_counter()
    for epoch, (loss, weights) in enumerate(train(source, heard, drafted, epochs), 1):
        yield f"epoch {epoch}: loss {loss:.3f} after {time.perf_counter() - started:.0f} s"
        if epoch == epochs:
            write_head(path, source, weights, TAPS, drafted)


def line(context: Context, n_vocab: int) -> Drafter:
    """Lines of four tokens."""
    return DraftModel("eagle3", context, n_vocab=n_vocab, max_draft=4)


def tree(context: Context, n_vocab: int) -> Drafter:
    """Trees of twelve tokens, four deep."""
    return DynamicTree("eagle3", context, TreeSize(4, 12), n_vocab=n_vocab)


def acceptance(
    model: LlamaModel,
    path: Path,
    make: Callable[[Context, int], Drafter],
    asked: Sequence[Sequence[int]],
    *,
    temperature: float = 0.0,
    most: int,
) -> Statistics:
    """What is accepted in replies of up to most tokens to these prompts."""
    context = model.open(_N_CTX)
    assert isinstance(context, LlamaContext)
    totals = Statistics(0.0)
    with closing(context), closing(load_head(path, model, context)) as head:
        drafter = make(head.open(_N_CTX), model.info.n_vocab)
        for seed, prompt in enumerate(asked):
            context.truncate(0)
            settings = SamplingSettings(temperature, seed=seed)
            limits = Limits(most, model.tokenizer.end_tokens)
            for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
                totals.add(event)
    return totals


_DRAFTERS = {"line": line, "tree": tree}


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("head", type=Path)
    parser.add_argument("--prompts", type=int, default=204)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=8192)
    arguments = parser.parse_args()
    bundled = demo_path()
    assert bundled is not None
    with closing(llamacpp.load(bundled)) as model:
        if not arguments.head.exists():
            for told in fit(
                model,
                arguments.head,
                count=arguments.prompts,
                most=arguments.tokens,
                epochs=arguments.epochs,
                vocabulary=arguments.vocabulary,
            ):
                print(told, flush=True)
        print(f"{arguments.head.stat().st_size / 1e6:.1f} MB")
        asked = {
            "built-in": [prompt for _, prompt in tokenized(model)],
            "similar": similar_prompts(model),
        }
        for (name, make), kind, temperature in product(_DRAFTERS.items(), asked, (0.0, 0.8)):
            found = acceptance(
                model,
                arguments.head,
                make,
                asked[kind],
                temperature=temperature,
                most=_MEASURED,
            )
            print(f"{name}, {kind} prompts, temperature {temperature}: {_told(found)}", flush=True)


def _told(found: Statistics) -> str:
    shares = ", ".join(f"{share:.3f}" for share in found.accepted_by_position)
    per_step = found.tokens_per_step or 0.0
    return f"accepted by position {shares}; {per_step:.2f} tokens per step of {found.steps}"


if __name__ == "__main__":
    main()
