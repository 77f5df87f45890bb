"""What cascades and votes draft: `python -m scripts.measure_composed [--temperature T]`.

Target: the bundled model; drafter model: its own Q4_0 copy, alone and in drafters made of it and
others, on a few built-in prompts of every kind. Every step drafts up to --draft-length tokens,
whether it pays or not. Printed for each drafter: acceptance, tokens per step, and passes of the
drafter model for each token it drew.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from backends import llamacpp
from backends.base import Context, Logits, Model
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.vote import Vote
from decoding.estimation.calibration import calibrate
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.prompts import tokenized
from tests.fixtures.first_hit import FirstHit

_CONTEXT = 1024


class Passes:
    """Counts the passes of a context for drafting, and the positions in them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.count = self.positions = 0
        forward = context.forward

        def counted(tokens: Sequence[int], n_logits: int) -> Logits:
            self.count += n_logits > 0
            self.positions += len(tokens) if n_logits > 0 else 0
            return forward(tokens, n_logits)

        context.forward = counted  # type: ignore[method-assign]


def drafters(target: Model, context: Context) -> dict[str, Callable[[], Drafter]]:
    """Each drafter made anew, so that none knows the texts of another."""
    n_vocab = target.info.n_vocab
    costs = calibrate(context, target.tokenizer.encode("the quick brown fox " * 16, special=False))

    def model() -> DraftModel:
        return DraftModel("self", context, n_vocab=n_vocab)

    def cascade(*, tail: bool = False, most: int = 15) -> Cascade:
        lookup, curve = PromptLookup(), CostModel(costs.seconds, costs.switching)
        below = Controller([ManagedDrafter(lookup)], curve, n_vocab)
        late = lookup if tail else None
        return Cascade("cascade", context, below, curve, n_vocab=n_vocab, tail=late, max_draft=most)

    return {
        "lookup": PromptLookup,
        "self": model,
        "lookup,self": lambda: FirstHit([PromptLookup(), model()], max_draft=15),
        "cascade(lookup,self)": cascade,
        "the same, tail after 2": lambda: cascade(tail=True, most=2),
        "vote(lookup,self)": lambda: Vote("vote", [PromptLookup(), model()]),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--of-each-kind", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=96)
    arguments = parser.parse_args()
    path = demo_path()
    assert path is not None
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        own = llamacpp.load(store.get(target.info, Recipe("q4_0"), lambda _done, _total: None))
    prompts: dict[str, list[list[int]]] = {}
    for kind, tokens in tokenized(target):
        prompts.setdefault(kind, []).append(tokens)
    chosen = [one for of_kind in prompts.values() for one in of_kind[: arguments.of_each_kind]]
    limits = Limits(arguments.tokens, target.tokenizer.end_tokens)
    tokens = arguments.tokens
    print(f"temperature {arguments.temperature}, {len(chosen)} prompts, {tokens} tokens each")
    with closing(target.open(_CONTEXT)) as context, closing(own.open(_CONTEXT)) as draft_context:
        makers = drafters(target, draft_context)
        passes = Passes(draft_context)
        for name, make in makers.items():
            totals, drafter = Statistics(0.0), FirstHit([make()], max_draft=arguments.draft_length)
            passes.count = passes.positions = 0
            for seed, prompt in enumerate(chosen):
                settings = SamplingSettings(arguments.temperature, 40, 1.0, 0.0, seed=seed)
                before = passes.count, passes.positions
                for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
                    totals.add(event)
                    if isinstance(event, Step) and event.seconds == 0.0:
                        passes.count, passes.positions = before  # the prompt was read
            print(f"{name:24s} {figures(totals, passes)}", flush=True)
    own.close()
    target.close()


def figures(totals: Statistics, passes: Passes) -> str:
    """One line of what was counted."""
    drafted = max(totals.drafted, 1)
    return (
        f"acceptance {totals.acceptance or 0.0:.3f}  tokens per step {totals.tokens_per_step:.2f}  "
        f"passes per drafted token {passes.count / drafted:.2f}  "
        f"positions {passes.positions / drafted:.2f}  "
        f"drafting {1e3 * totals.draft_seconds / drafted:.1f} ms"
    )


if __name__ == "__main__":
    main()
