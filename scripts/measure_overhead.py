"""Measures the overhead of the loop: `python -m scripts.measure_overhead [GGUF]`.

Interleaves a bare low-level llama.cpp loop with plain generation in one process, and reports the
ratio of their rates, the share of decode time that is neither drafting nor the target's passes, and
the share that the free drafters, the controller and the statistics take together.
"""

import argparse
import statistics
import time
from pathlib import Path

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.base import Context
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram
from decoding.estimation.calibration import calibrate
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.stores.available_models import demo_path
from scripts.prompts import tokenized

_TOKENS = 128
_ROUNDS = 5
_GREEDY = SamplingSettings(temperature=0.0)
_SAMPLED = SamplingSettings(temperature=0.8, top_k=40, top_p=1.0, min_p=0.0)


def bare_rate(context: Context, prompt: list[int]) -> float:
    """Tokens per second of llama_decode with a greedy sampler in C and nothing else."""
    assert isinstance(context, llamacpp.LlamaContext)
    context.truncate(0)
    context.forward(prompt[:-1], 0)
    pointer = context.pointer
    assert pointer is not None
    sampler = api.llama_sampler_init_greedy()
    token = (api.llama_token * 1)(prompt[-1])
    count = 0
    started = time.perf_counter()
    while count <= _TOKENS:
        api.llama_decode(pointer, api.llama_batch_get_one(token, 1))
        token[0] = api.llama_sampler_sample(sampler, pointer, -1)
        if count == 0:
            started = time.perf_counter()
        count += 1
    seconds = time.perf_counter() - started
    api.llama_sampler_free(sampler)
    memory = api.llama_get_memory(pointer)
    assert memory is not None
    api.llama_memory_seq_rm(memory, 0, context.length, -1)
    return (count - 1) / seconds


def our_figures(context: Context, prompt: list[int], settings: SamplingSettings) -> Statistics:
    """Statistics of plain generation through the whole loop."""
    context.truncate(0)
    figures = Statistics(time.perf_counter())
    for event in generate(context, prompt, settings, Limits(_TOKENS + 1, frozenset())):
        figures.add(event)
        assert not isinstance(event, Step) or event.drafted == 0
    return figures


class TimedController(Controller):
    """Adds up the seconds that it takes to learn."""

    seconds = 0.0

    def observe(self, step: Step) -> None:
        started = time.perf_counter()
        super().observe(step)
        self.seconds += time.perf_counter() - started


def control_share(context: Context, prompts: list[list[int]], costs: CostModel) -> float:
    """Seconds in free drafters, controller and statistics, as a share of decode time."""
    controller = TimedController(
        [ManagedDrafter(PromptLookup()), ManagedDrafter(Ngram())], costs, n_vocab=1 << 31
    )
    spent = decoding = 0.0
    for prompt in prompts:
        figures = Statistics(time.perf_counter())
        limits = Limits(_TOKENS, frozenset())
        for event in generate(context, prompt, _GREEDY, limits, drafters=always(controller)):
            started = time.perf_counter()
            figures.add(event)
            if isinstance(event, Step):
                spent += event.draft_seconds
            spent += time.perf_counter() - started
        decoding += figures.decode_seconds or 0.0
    return (spent + controller.seconds) / decoding


def overhead(figures: list[Statistics]) -> float:
    """Overhead as a share of decode time, over all runs."""
    total = sum(run.decode_seconds or 0.0 for run in figures)
    return sum(run.overhead_seconds or 0.0 for run in figures) / total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", nargs="?", type=Path, default=demo_path())
    path = parser.parse_args().gguf
    assert path is not None, "the bundled model is not installed"
    model = llamacpp.load(path)
    context = model.open(1024)
    prompt = tokenized(model)[0][1]
    ratios: list[float] = []
    greedy: list[Statistics] = []
    sampled: list[Statistics] = []
    for _ in range(_ROUNDS):
        before = bare_rate(context, prompt)
        greedy.append(our_figures(context, prompt, _GREEDY))
        after = bare_rate(context, prompt)
        ours = greedy[-1].decode_tokens_per_second or 0.0
        ratios.append(ours / ((before + after) / 2))
        sampled.append(our_figures(context, prompt, _SAMPLED))
        print(f"bare {before:6.1f} {after:6.1f} tok/s   ours {ours:6.1f}   {ratios[-1]:.3f}")
    text = [token for _, tokens in tokenized(model) for token in tokens]
    share = control_share(
        context,
        [tokens for _, tokens in tokenized(model)],
        CostModel(calibrate(context, text)),
    )
    print(f"--draft off / bare loop: median {statistics.median(ratios):.3f}")
    print(f"overhead, temperature 0: {overhead(greedy):.2%} of decode time")
    print(f"overhead, temperature 0.8, top-k 40: {overhead(sampled):.2%} of decode time")
    print(f"free drafters, controller and statistics: {share:.2%} of decode time")
    model.close()


if __name__ == "__main__":
    main()
