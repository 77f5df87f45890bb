"""What drafting across vocabularies loses: `python -m scripts.measure_across [--temperature T]`.

Target: the bundled model; drafter: its own Q4_0 copy, in the target's vocabulary and in others
made from it. Printed for each: shared tokens by count and in ordinary text, acceptance in the
loop, and the time beyond the drafter's own passes for each token drafted.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from app.drafter_model import open_drafter
from backends import llamacpp
from backends.base import Context, Logits, Model
from decoding.drafters.across_vocabularies import AcrossVocabularies
from decoding.drafters.text_level import TextLevel
from decoding.generation import Limits, generate
from decoding.sampling import SamplingSettings
from decoding.telemetry import Statistics
from models.bundled import demo_path
from models.recipe import Recipe
from models.self_draft import SelfDrafts
from scripts.change_vocabulary import Change, change_vocabulary
from scripts.prompts import tokenized

_TOKENS = 96
_CHANGES = {
    "permuted": Change(0.0),
    "2 % changed": Change(0.02),
    "10 % changed": Change(0.1),
    "as SentencePiece": Change(0.0, sentencepiece=True),
}


class Timed:
    """A context that adds up the time of its own passes and rollbacks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seconds = 0.0

    def __getattr__(self, name: str):
        return getattr(self._context, name)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        started = time.perf_counter()
        rows = self._context.forward(tokens, n_logits)
        self.seconds += time.perf_counter() - started
        return rows

    def truncate(self, length: int) -> None:
        started = time.perf_counter()
        self._context.truncate(length)
        self.seconds += time.perf_counter() - started


def measure(target: Model, path: Path, temperature: float, length: int, *, text: bool) -> str:
    """Draft every built-in prompt with a file, and say what came of it."""
    drafter = llamacpp.load(path)
    made: list[Timed] = []
    opener: Callable[[int], Context] = drafter.open
    drafter.open = lambda n_ctx: made.append(Timed(opener(n_ctx))) or made[0]
    started = time.perf_counter()
    opened = open_drafter("drafter", drafter, target, 1024, is_own=False)
    load = time.perf_counter() - started
    draft = opened.drafter
    if text and isinstance(draft, AcrossVocabularies):
        ...
    draft._max_draft = length
    context = target.open(1024)
    totals = Statistics(0.0)
    inside = 0.0
    for seed, (_, prompt) in enumerate(tokenized(target)):
        settings = SamplingSettings(temperature, top_k=40, top_p=1.0, min_p=0.0, seed=seed)
        limits = Limits(_TOKENS, target.tokenizer.end_tokens)
        made[0].seconds = 0.0
        for event in generate(context, prompt, settings, limits, drafter=draft):
            totals.add(event)
            if hasattr(event, "drafted") and event.seconds == 0.0:
                made[0].seconds = 0.0
        inside += made[0].seconds
    drafter.close()
    drafted = max(totals.drafted, 1)
    beyond = 1e6 * (totals.draft_seconds - inside) / drafted
    passes = 1e6 * inside / drafted
    return (
        f"acceptance {totals.acceptance:.3f}, {totals.tokens_per_step:.2f} tokens a step, "
        f"{passes:.0f} us of passes and {beyond:.0f} us beyond for each drafted token "
        f"({beyond / passes:.1%}), opened in {1e3 * load:.0f} ms; {opened.note}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--draft-length", type=int, default=3)
    arguments = parser.parse_args()
    path = demo_path()
    assert path is not None
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        own = store.get(target.info, Recipe("q4_0"), lambda done, total: None)
        files = {"own vocabulary": own}
        for name, change in _CHANGES.items():
            files[name] = Path(folder) / f"{name}.gguf"
            change_vocabulary(own, files[name], change)
        for name, file in files.items():
            said = measure(target, file, arguments.temperature, arguments.draft_length, text=False)
            print(f"{name}: {said}", flush=True)
    target.close()


if __name__ == "__main__":
    main()
