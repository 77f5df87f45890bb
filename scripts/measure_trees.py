"""What trees and several lines of a drafter model are worth: `python -m scripts.measure_trees`.

Target: the bundled model; drafter: its own copy, or one without some of its layers. Every step
drafts, whether it pays or not: tokens accepted per step, over one prompt of each kind, with the
standard error. Then, at the same positions of the same texts, how often a token of each rank of
the drafter is right, and how much of one token is accepted when one of k was chosen: the overlap of
the law it then has with the target's, sum over x of min(p(x), q(x)).
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from app.drafting.composed_drafter import BY_RANK
from backends import llamacpp
from backends.base import Context
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.several_paths import SeveralPaths, by_likelihood, select
from decoding.estimation.cost import TreeSize
from decoding.estimation.trial import overlap
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.draft_length import likeliest
from decoding.sampling.distribution import Distribution
from decoding.sampling.settings import SamplingSettings
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.measure_acceptance import rows
from scripts.prompts import tokenized

_CONTEXT = 1024
_DEPTH, _NODES = 3, 6
_RANKS = 5
_LINES = (1, 2, 3, 4)


def drafters(context: Context, n_vocab: int) -> dict[str, Callable[[], Drafter]]:
    """Each made anew, so that none knows the text of another."""
    size, shape = TreeSize(_DEPTH, _NODES), likeliest(BY_RANK, _NODES, _DEPTH)
    return {
        f"a line of {_DEPTH}": lambda: DraftModel(
            "line", context, n_vocab=n_vocab, max_draft=_DEPTH
        ),
        f"a line of {_NODES}": lambda: DraftModel(
            "line", context, n_vocab=n_vocab, max_draft=_NODES
        ),
        "tree, likeliest": lambda: DynamicTree("tree", context, size, n_vocab=n_vocab),
        "tree, drawn": lambda: SampledTree("tree", context, shape, n_vocab=n_vocab),
        "2 lines": lambda: SeveralPaths("paths", context, 2, _DEPTH, n_vocab=n_vocab),
        "4 lines": lambda: SeveralPaths("paths", context, 4, _DEPTH, n_vocab=n_vocab),
    }


def one_of(count: int, q_draft: Distribution) -> Distribution:
    """The law of a token whose line was chosen from count."""
    token = int(q_draft.ids[0])  # it is the same whatever came up
    return select([(token,)] * count, lambda _prefix: q_draft, by_likelihood)[1][0]


def by_rank(p_target: Distribution, q_draft: Distribution) -> list[float]:
    """How likely each of the drafter's likeliest tokens is to be right."""
    order = q_draft.probabilities.argsort(kind="stable")[::-1][:_RANKS]
    found = p_target.at(q_draft.ids[order]).tolist()
    return found + [0.0] * (_RANKS - len(found))


def at_positions(
    context: Context, draft_context: Context, texts: Sequence[tuple[list[int], int]],
    settings: SamplingSettings,
) -> None:  # fmt: skip
    """Print what holds of single tokens after each text; with where what was said begins."""
    ranks: list[list[float]] = []
    overlaps: list[list[float]] = []
    for text, first in texts:
        p_rows = rows(context, text, first, settings)
        for p, q in zip(p_rows, rows(draft_context, text, first, settings), strict=True):
            ranks.append(by_rank(p, q))
            overlaps.append([overlap(p, one_of(count, q)) for count in _LINES])
    print(f"{len(ranks)} positions")
    for what, found in (("right, by rank", ranks), (f"one of {_LINES}", overlaps)):
        shares = (f"{statistics.fmean(column):.3f}" for column in zip(*found, strict=True))
        print(f"{what:20} {' '.join(shares)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--recipe", default="q4_0")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--every", type=int, default=4, help="one prompt of so many")
    parser.add_argument("--only", default="", help="drafters whose names begin so")
    arguments = parser.parse_args()
    path = demo_path()
    assert path is not None
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        recipe = Recipe.parse(arguments.recipe)
        drafter = llamacpp.load(store.get(target.info, recipe, lambda _done, _total: None))
    context, draft_context = target.open(_CONTEXT), drafter.open(_CONTEXT)
    limits = Limits(arguments.tokens, target.tokenizer.end_tokens)
    prompts = [prompt for _, prompt in tokenized(target)[:: arguments.every]]
    sampling = SamplingSettings(arguments.temperature, arguments.top_k, 1.0, 0.0)
    print(f"temperature {sampling.temperature}, top-k {sampling.top_k}, {arguments.recipe}")
    texts: list[tuple[list[int], int]] = []
    for name, make in drafters(draft_context, target.info.n_vocab).items():
        if not name.startswith(arguments.only):
            continue
        accepted: list[int] = []
        said: list[tuple[list[int], int]] = []
        for seed, prompt in enumerate(prompts):
            text, settings = list(prompt), replace(sampling, seed=seed)
            for event in generate(context, prompt, settings, limits, drafters=always(make())):
                if isinstance(event, Step):
                    text += event.tokens
                    accepted += [event.accepted] if event.drafted else []
            said.append((text, len(prompt)))
        error = statistics.stdev(accepted) / len(accepted) ** 0.5
        print(f"{name:20} {statistics.fmean(accepted):.3f} ± {error:.3f}", end="")
        print(f" accepted, {len(accepted)} steps", flush=True)
        texts = texts or said
    at_positions(context, draft_context, texts, sampling)
    drafter.close()
    target.close()


if __name__ == "__main__":
    main()
