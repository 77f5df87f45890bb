"""What lossy rules give up and gain for one token: `python -m scripts.measure_lossy [--whole]`.

Target: the bundled model; drafter: its own Q4_0 copy. At each position of replies of the target at
temperature 1 acceptance and total variation are computed from p and q, for a token drawn from q and
for q's likeliest as a certain one. --whole: no top-k, top-p and min-p.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from backends import llamacpp
from backends.base import Context
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampling.distribution import Distribution, point_mass, warp
from decoding.sampling.settings import LossyRule, SamplingSettings, parse_lossy
from decoding.verification.lossy import judgement
from decoding.verification.rules import residual
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.prompts import tokenized

_RULES = ("off", "ears", "ears:0.3", "lenient", "typical")
_LEAST = 1e-6
"""Tokens that a drafter draws less often are left out of q."""


def laws(
    context: Context, tokens: list[int], first: int, settings: SamplingSettings
) -> Iterator[Distribution]:
    """The distribution after each token from the one at first on."""
    context.truncate(0)
    most = min(context.max_logits, context.n_chunk)
    for start in range(0, len(tokens), most):
        rows = context.forward(piece := tokens[start : start + most], len(piece))
        for place, row in enumerate(rows, start):
            if place >= first:
                yield warp(row, settings)


def drawable(law: Distribution) -> Distribution:
    """A drafter's law without what it hardly ever draws."""
    likely = law.probabilities > _LEAST
    kept = law.probabilities[likely]
    return Distribution(law.ids[likely], kept / kept.sum())


def judged(
    rule: LossyRule | None, p_target: Distribution, q_draft: Distribution
) -> tuple[float, float]:
    """Acceptance of a token of q_draft, and the distance of what is said then from p_target."""
    exact = p_target.at(q_draft.ids) / q_draft.probabilities
    keep, rest = exact, residual(p_target, q_draft)
    if rule is not None:
        found = [judgement(rule, p_target, q_draft, int(token)) for token in q_draft.ids]
        keep, rest = np.array([one[0] for one in found]), found[0][1]()
    accepted = q_draft.probabilities * np.minimum(keep, 1.0)
    ids = np.union1d(p_target.ids, q_draft.ids)
    said = Distribution(q_draft.ids, accepted).at(ids) + (1.0 - accepted.sum()) * rest.at(ids)
    return float(accepted.sum()), float(np.abs(said - p_target.at(ids)).sum() / 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=48)
    arguments = parser.parse_args()
    settings = SamplingSettings(1.0)
    if arguments.whole:
        settings = SamplingSettings(1.0, top_k=0, top_p=1.0, min_p=0.0)
    path = demo_path()
    assert path is not None
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        drafter = llamacpp.load(store.get(target.info, Recipe("q4_0"), lambda _done, _total: None))
    context, draft_context = target.open(1024), drafter.open(1024)
    limits = Limits(arguments.tokens, target.tokenizer.end_tokens)
    figures: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for seed, (_, prompt) in enumerate(list(tokenized(target))[: arguments.prompts]):
        events = generate(context, prompt, replace(settings, seed=seed), limits)
        reply = [token for one in events if isinstance(one, Step) for token in one.tokens]
        text, first = [*prompt, *reply[:-1]], len(prompt) - 1
        of_target = laws(context, text, first, settings)
        of_draft = laws(draft_context, text, first, settings)
        for p_target, law in zip(of_target, of_draft, strict=True):
            drawn = drawable(law)
            certain = point_mass(int(drawn.ids[drawn.probabilities.argmax()]))
            for rule in _RULES:
                for kind, q_draft in (("drawn", drawn), ("certain", certain)):
                    figures[rule, kind].append(judged(parse_lossy(rule), p_target, q_draft))
    for (rule, kind), found in figures.items():
        acceptance, distance = np.mean(found, axis=0)
        print(f"{rule:10} {kind:8} {len(found):4} {acceptance:.3f} {distance:.3f}")


if __name__ == "__main__":
    main()
