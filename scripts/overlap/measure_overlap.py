"""What drafting during verification costs and brings: `python -m scripts.overlap.measure_overlap`.

Run with `[TARGET DRAFTER]`, two GGUF files of one vocabulary; without, the bundled model and its
own Q4_0 copy. First, what passes of both take at once, against alone; then replies at temperature 0
with drafts of a fixed length, interleaved: plain, drafted in turn, and drafted ahead. Each engine
has all threads when alone, and its share while both run. "Hidden" is what drafting the tokens that
were made ahead and used takes in turn.
"""

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends import llamacpp
from backends.base import Context, Model
from backends.hardware.host import physical_cores
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.overlap.overlap_cost import AtOnce, measure_at_once
from decoding.overlap.overlapping import DrafterThread, Overlapping, ThreadSplit
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from scripts.measure_acceptance import demo_pair
from scripts.prompts import tokenized

_GREEDY = SamplingSettings(temperature=0.0)
_N_CTX = 1024
_ACCEPTANCE = 0.8
"""Of each token, by which outcomes are put in order."""


@dataclass(slots=True)
class Method:
    """A way of drafting, and the replies made with it."""

    drafter: Drafter | None
    replies: list[Statistics] = field(default_factory=list[Statistics])
    tokens: list[list[int]] = field(default_factory=list[list[int]])

    @property
    def draw_seconds(self) -> float:
        """Mean time of a drafted token."""
        drafted = sum(one.drafted for one in self.replies)
        return sum(one.draft_seconds for one in self.replies) / max(drafted, 1)


def at_once(
    target: Context, drafter: Context, tokens: Sequence[int], length: int, split: ThreadSplit | None
) -> AtOnce:
    """Factors of both while both run."""
    worker = DrafterThread()
    try:
        return measure_at_once(target, drafter, worker, tokens, 1 + length, split)
    finally:
        worker.close()


def reply(context: Context, prompt: list[int], method: Method, count: int, model: Model) -> None:
    """Make a reply from an empty cache."""
    context.truncate(0)
    figures, tokens = Statistics(time.perf_counter()), list[int]()
    limits = Limits(count, model.tokenizer.end_tokens)
    for event in generate(context, prompt, _GREEDY, limits, drafters=always(method.drafter)):
        figures.add(event)
        if isinstance(event, Step):
            tokens += event.tokens
    method.replies.append(figures)
    method.tokens.append(tokens)


def row(name: str, method: Method, plain: Method) -> str:
    """One line of the table."""
    pairs = zip(method.replies, plain.replies, strict=True)
    gains = [
        (own.decode_tokens_per_second or 0.0) / (base.decode_tokens_per_second or 1.0)
        for own, base in pairs
    ]
    total: defaultdict[str, float] = defaultdict(float)
    for one in method.replies:
        total["tokens"] += one.completion_tokens - 1
        total["seconds"] += one.decode_seconds or 0.0
        total["drafted"] += one.drafted
        total["accepted"] += one.accepted
        total["rounds"] += one.predrafted_rounds
        total["hits"] += one.predraft_hits
        total["drafting"] += one.draft_seconds
        total["hidden"] += one.hidden_draft_seconds
    same = sum(a == b for a, b in zip(method.tokens, plain.tokens, strict=True))
    figures = (
        f"{total['tokens'] / total['seconds']:.1f}",
        f"{statistics.geometric_mean(gains):.2f}",
        f"{total['accepted'] / total['drafted']:.2f}" if total["drafted"] else "",
        f"{total['hits'] / total['rounds']:.2f}" if total["rounds"] else "",
        f"{total['drafting'] / total['seconds']:.0%}",
        f"{total['hidden'] / total['seconds']:.0%}",
        f"{same} of {len(method.tokens)}",
    )
    return " | ".join((f"| {name}", *figures)) + " |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="TARGET DRAFTER")
    parser.add_argument("--length", type=int, default=3, help="drafted tokens")
    parser.add_argument("--tokens", type=int, default=96, help="of a reply")
    parser.add_argument("--replies", type=int, default=4)
    parser.add_argument("--cores", type=int, default=physical_cores())
    arguments = parser.parse_args()
    cores: int = arguments.cores
    if arguments.files:
        target, drafter = (llamacpp.load(path, threads=cores) for path in arguments.files)
    else:
        target, drafter = demo_pair()
    context, draft_context = target.open(_N_CTX), drafter.open(_N_CTX)
    assert isinstance(context, llamacpp.LlamaContext)
    assert isinstance(draft_context, llamacpp.LlamaContext)
    prompts = tokenized(target)
    text = [token for _, prompt in prompts for token in prompt]
    print(f"{target.info.name}, {drafter.info.name}; {cores} cores, load {os.getloadavg()[0]:.1f}")
    n_vocab, ends = target.info.n_vocab, target.tokenizer.end_tokens
    lines = DraftModel(
        "model", draft_context, n_vocab=n_vocab, end_tokens=ends, max_draft=arguments.length
    )
    in_turn = Method(lines)
    methods = {"plain": Method(None), "in turn": in_turn}
    print("\n| threads of target + drafter | target's passes | drafter's passes |")
    print("| --- | --- | --- |")
    workers: list[DrafterThread] = []
    for threads in sorted({(cores, cores), (cores - 1, 1), (cores - cores // 2, cores // 2)}):
        if min(threads) < 1:
            continue
        split = ThreadSplit(context, draft_context, threads, (cores, cores))
        found = at_once(context, draft_context, text, arguments.length, split)
        name = f"{threads[0]} + {threads[1]}"
        print(f"| {name} | × {found.target:.2f} | × {found.drafter:.2f} |")
        workers.append(DrafterThread())
        methods[f"ahead, {name}"] = Method(
            Overlapping(
                "overlap",
                lines.anew(),
                workers[-1],
                acceptance=lambda draft: [_ACCEPTANCE] * len(draft),
                draw_seconds=lambda: in_turn.draw_seconds,
                split=split,
            )
        )
    for number in range(arguments.replies):
        _, prompt = prompts[number % len(prompts)]
        for method in methods.values():
            reply(context, list(prompt), method, arguments.tokens, target)
    print("\n| method | tok/s | gain | accepted | hits | drafting | hidden | same tokens |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, method in methods.items():
        print(row(name, method, methods["plain"]))
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    for worker in workers:
        worker.close()
    drafter.close()
    target.close()


if __name__ == "__main__":
    main()
