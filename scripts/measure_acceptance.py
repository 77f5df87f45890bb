"""What each verification rule accepts: `python -m scripts.measure_acceptance [--temperature T]`.

Target: the bundled model; drafter: its own Q4_0 copy; top-k 40. The expectations of three rules
are taken at the same positions of the same texts, next to the acceptance the real loop counts:
rejection sampling accepts sum min(p, q), an argmax draft with token match p(argmax q), a sampled
draft with token match sum p q.
"""

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from backends import llamacpp
from backends.base import Context, Model
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.prompts import tokenized

_TOKENS = 96


def demo_pair() -> tuple[Model, Model]:
    """The bundled model and its own Q4_0 copy; close both."""
    path = demo_path()
    assert path is not None
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        copy = store.get(target.info, Recipe("q4_0"), lambda _done, _total: None)
        return target, llamacpp.load(copy)


def rows(
    context: Context, tokens: list[int], first: int, settings: SamplingSettings
) -> list[Distribution]:
    """The distribution at each position from first on, given the tokens before it."""
    sampler = Sampler(settings)
    reuse(context, tokens[:first])
    *_, (_, logits) = prefill(context, tokens[:first])
    found = [sampler.distribution(logits[0], ())]
    passes = (context.forward([token], 1) for token in tokens[first:-1])
    return found + [sampler.distribution(logits[0], ()) for logits in passes]


def expected(p_target: Distribution, q_draft: Distribution) -> tuple[float, float, float]:
    """Acceptance of one drafted token under the three rules."""
    p_on_q = p_target.at(q_draft.ids)
    q = q_draft.probabilities
    likeliest = int(q.argmax())
    return (
        float(sum(map(min, p_on_q, q))),
        float(p_on_q[likeliest]),
        float((p_on_q * q).sum()),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--draft-length", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    temperature = arguments.temperature
    target, drafter = demo_pair()
    context, draft_context = target.open(1024), drafter.open(1024)
    totals = Statistics(0.0)
    expectations: list[tuple[float, float, float]] = []
    for seed, (_, prompt) in enumerate(tokenized(target) * arguments.rounds):
        settings = SamplingSettings(temperature, top_k=40, top_p=1.0, min_p=0.0, seed=seed)
        draft = DraftModel(
            "self",
            draft_context,
            n_vocab=target.info.n_vocab,
            max_draft=arguments.draft_length,
        )
        text = list(prompt)
        limits = Limits(_TOKENS, target.tokenizer.end_tokens)
        for event in generate(context, prompt, settings, limits, drafters=always(draft)):
            totals.add(event)
            if isinstance(event, Step):
                text += event.tokens
        p_rows = rows(context, text, len(prompt), settings)
        q_rows = rows(draft_context, text, len(prompt), settings)
        expectations += map(expected, p_rows, q_rows)
    rejection, argmax_match, sampled_match = map(statistics.fmean, zip(*expectations, strict=True))
    counted = totals.accepted_by_position[0]
    print(f"temperature {temperature}, top-k 40, {len(expectations)} positions")
    print(f"first drafted token, counted in the loop   {counted:.3f}  ({totals.steps} steps)")
    print(f"rejection sampling, expected               {rejection:.3f}")
    print(f"argmax draft with token match, expected    {argmax_match:.3f}")
    print(f"sampled draft with token match, expected   {sampled_match:.3f}")
    drafter.close()
    target.close()


if __name__ == "__main__":
    main()
