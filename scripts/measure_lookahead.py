"""What guesses made beside the text are worth: `python -m scripts.measure_lookahead`.

On the bundled model, with nobody to park them: tokens per step and acceptance of jacobi and of
lookahead; then what a pass over a tree takes beside one over a line of as many tokens, the two
taken in turn.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from backends import llamacpp
from backends.base import Context
from decoding.draft import Drafter
from decoding.drafters.jacobi import Jacobi
from decoding.drafters.lookahead import Lookahead, LookaheadShape
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.stores.available_models import demo_path
from scripts.prompts import tokenized

_SIZES = (4, 8, 16, 31)
_HELD = 256


def spoken(
    context: Context,
    prompts: Sequence[Sequence[int]],
    settings: SamplingSettings,
    limits: Limits,
    drafter: Drafter,
) -> Statistics:
    """Figures of a reply to each prompt."""
    totals = Statistics(0.0)
    for prompt in prompts:
        for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
            totals.add(event)
    return totals


def timed(context: Context, count: int, *, as_tree: bool) -> float:
    """Seconds of a pass over count tokens, and of keeping one."""
    context.truncate(_HELD)
    tokens = list(range(1000, 1000 + count))
    started = time.perf_counter()
    if as_tree:  # branches of three tokens below the first
        below = [node if node % 3 else 0 for node in range(count - 1)]
        context.forward_tree(tokens, [-1, *below])
        context.commit([0])
    else:
        context.forward(tokens, count)
        context.truncate(_HELD + 1)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short replies to a few prompts")
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    path = demo_path()
    assert path is not None
    model = llamacpp.load(path)
    context = model.open(1024)
    prompts = [prompt for _, prompt in tokenized(model)][:: 3 if arguments.quick else 1]
    limits = Limits(48 if arguments.quick else 128, model.tokenizer.end_tokens)
    settings = SamplingSettings(temperature=arguments.temperature)
    shapes = [LookaheadShape(), LookaheadShape(5, 4, 5)]
    drafters: list[Drafter] = [Jacobi(max_draft=4), *map(Lookahead, shapes)]
    for drafter in drafters:
        found = spoken(context, prompts, settings, limits, drafter)
        places = " ".join(f"{share:.2f}" for share in found.accepted_by_position)
        print(
            f"{getattr(drafter, 'shape', '') or drafter.name}: {found.tokens_per_step:.3f} tokens "
            f"per step, acceptance {found.acceptance or 0.0:.3f}, by place {places}"
        )
    _compare(context, 5 if arguments.quick else 15)
    model.close()


def _compare(context: Context, rounds: int) -> None:
    """Print what trees take beside lines."""
    context.truncate(0)
    for _ in range(2):
        context.forward(list(range(2000, 2000 + _HELD // 2)), 0)
    for count in _SIZES:
        lines: list[float] = []
        trees: list[float] = []
        for _ in range(rounds):
            lines.append(timed(context, count, as_tree=False))
            trees.append(timed(context, count, as_tree=True))
        line, tree = statistics.median(lines), statistics.median(trees)
        print(
            f"{count:3} tokens: line {1e3 * line:.1f} ms, tree {1e3 * tree:.1f} ms, "
            f"{tree / line:.2f} of it (of the least: {min(trees) / min(lines):.2f})"
        )


if __name__ == "__main__":
    main()
