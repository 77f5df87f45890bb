"""specchat beside mlx-lm on the same weights, in one run: `python -m scripts.measure_mlx FOLDER`.

Plain decoding: tokens a second of both, in turns, greedy and sampled. Drafting at temperature 1.0
with top-k 40: acceptance of both with the same drafter, prompts and draft length; the drafter is
the target with its matrices rounded to a few bits.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler

from backends import mlx
from backends.mlx.model import MlxModel
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from scripts.prompts import tokenized

_GROUP = 64
_GREEDY = SamplingSettings(0.0, 0, 1.0, 0.0)


def our_rate(model: MlxModel, prompt: list[int], tokens: int, settings: SamplingSettings) -> float:
    """Tokens a second after the first one."""
    context = model.open(len(prompt) + tokens)
    events = generate(context, prompt, settings, Limits(tokens, frozenset()))
    rate = _rate(event for event in events if isinstance(event, Step))
    context.close()
    return rate


def their_rate(
    model: MlxModel, prompt: list[int], tokens: int, settings: SamplingSettings
) -> float:
    """The same of mlx-lm's generate_step."""
    sampler = _sampler(settings)
    return _rate(
        generate_step(mx.array(prompt), _module(model), max_tokens=tokens, sampler=sampler)
    )


def _rate(tokens: Iterable[object]) -> float:
    ended = [time.perf_counter() for _ in tokens]
    return (len(ended) - 1) / (ended[-1] - ended[0])


def our_acceptance(
    target: MlxModel, drafter: MlxModel, prompt: list[int], tokens: int, length: int, seed: int
) -> tuple[int, int]:
    """Tokens accepted and drafted."""
    contexts = [model.open(len(prompt) + tokens) for model in (target, drafter)]
    model = DraftModel("rounded", contexts[1], n_vocab=target.info.n_vocab, max_draft=length)
    limits = Limits(tokens, frozenset())
    events = generate(contexts[0], prompt, _warm(seed), limits, drafters=always(model))
    steps = [event for event in events if isinstance(event, Step)]
    for context in contexts:
        context.close()
    return sum(step.accepted for step in steps), sum(step.drafted for step in steps)


def their_acceptance(
    target: MlxModel, drafter: MlxModel, prompt: list[int], tokens: int, length: int, seed: int
) -> tuple[int, int]:
    """The same of mlx-lm's speculative_generate_step; every pass drafts what there is room for."""
    mx.random.seed(seed)
    accepted, drafted = 0, min(length, tokens)
    pairs = speculative_generate_step(
        mx.array(prompt),
        _module(target),
        _module(drafter),
        num_draft_tokens=length,
        max_tokens=tokens,
        sampler=_sampler(_warm(seed)),
    )
    for said, (_, _, from_draft) in enumerate(pairs, start=1):
        accepted += from_draft
        if not from_draft:
            drafted += min(length, tokens - said)
    return accepted, drafted


def _module(model: MlxModel) -> nn.Module:
    assert model.module is not None, "the model is closed"
    return model.module


def _warm(seed: int) -> SamplingSettings:
    return SamplingSettings(1.0, 40, 1.0, 0.0, seed=seed)


def _sampler(settings: SamplingSettings) -> Callable[[mx.array], mx.array]:
    return make_sampler(
        settings.temperature,
        settings.top_p if settings.top_p < 1.0 else 0.0,
        settings.min_p,
        top_k=settings.top_k,
    )


def rounded(path: Path, bits: int) -> MlxModel:
    """A model whose matrices were quantized and made float32 again: worse, and as fast."""
    model = mlx.load(path)

    def worse(weight: mx.array) -> mx.array:
        if weight.ndim < 2 or weight.shape[-1] % _GROUP:
            return weight
        found: Sequence[Any] = mx.quantize(weight, _GROUP, bits)
        return mx.dequantize(*found, _GROUP, bits)

    module = _module(model)
    module.update(tree_map(worse, module.parameters()))
    mx.eval(module.parameters())
    return model


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--draft-length", type=int, default=3)
    arguments = parser.parse_args()
    tokens, length = arguments.tokens, arguments.draft_length
    target = mlx.load(arguments.folder)
    prompts = [prompt for _, prompt in tokenized(target) if len(prompt) < 128]
    print(f"{target.info.name} on {target.info.device}, {target.info.engine}")

    for name, settings in (("greedy", _GREEDY), ("sampled", SamplingSettings())):
        rates: list[tuple[float, float]] = []
        for _ in range(arguments.rounds):
            ours = our_rate(target, prompts[0], tokens, settings)
            rates.append((ours, their_rate(target, prompts[0], tokens, settings)))
        ours, theirs = map(statistics.median, zip(*rates, strict=True))
        ratio = statistics.median(ours / theirs for ours, theirs in rates)
        print(f"plain, {name:8}  specchat {ours:6.2f} tok/s  mlx-lm {theirs:6.2f}  {ratio:.3f} x")

    drafter = rounded(arguments.folder, arguments.bits)
    totals = [[0, 0], [0, 0]]
    for seed, prompt in enumerate(prompts):
        for total, measure in zip(totals, (our_acceptance, their_acceptance), strict=True):
            accepted, drafted = measure(target, drafter, prompt, tokens, length, seed)
            total[0] += accepted
            total[1] += drafted
        print(f"  after {seed + 1} of {len(prompts)} prompts: {totals}", flush=True)
    for name, (accepted, drafted) in zip(("specchat", "mlx-lm"), totals, strict=True):
        print(f"acceptance, {name:8}  {accepted / drafted:.3f}  ({accepted} of {drafted})")


if __name__ == "__main__":
    main()
