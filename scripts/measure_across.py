"""What drafting across vocabularies loses: `python -m scripts.measure_across [--temperature T]`.

Target: the bundled model; drafter: its own Q4_0 copy, in the target's vocabulary and in others
made from it. Printed for each: acceptance in the loop and the tokens that are shared. Last, what
crossing over costs beside one pass of the drafter.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from app.builtin_prompts import built_in_prompts
from app.drafting.drafter_model import open_drafter
from backends import llamacpp
from backends.base import Model
from decoding.drafters.cross_vocabulary.follower import Retokenizer
from decoding.drafters.cross_vocabulary.vocabularies import SharedVocabulary, Speller, TokenBytes
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import warp
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.models.change_vocabulary import Change, change_vocabulary
from scripts.prompts import tokenized
from tests.fixtures.first_hit import FirstHit

_PASSES = 50
_CHANGES = {
    "permuted": Change(0.0),
    "2 % changed": Change(0.02),
    "10 % changed": Change(0.1),
    "as SentencePiece": Change(0.0, sentencepiece=True),
}


def acceptance(target: Model, path: Path, temperature: float, length: int, tokens: int) -> str:
    """Draft the built-in prompts with a file, and say what came of it."""
    with closing(llamacpp.load(path)) as drafter, closing(target.open(1024)) as context:
        opened = open_drafter(path.stem, drafter, target, 1024, is_own=False)
        draft = FirstHit([opened.drafter], max_draft=length)
        totals = Statistics(0.0)
        for seed, (_, prompt) in enumerate(tokenized(target)):
            settings = SamplingSettings(temperature, top_k=40, top_p=1.0, min_p=0.0, seed=seed)
            limits = Limits(tokens, target.tokenizer.end_tokens)
            for event in generate(context, prompt, settings, limits, drafters=always(draft)):
                totals.add(event)
    return f"acceptance {totals.acceptance:.3f} in {totals.steps:,} steps. {opened.note}"


def costs(target: Model, path: Path) -> Iterator[str]:
    """Seconds of what a drafter does beyond its own passes, as medians."""
    tokenizer = target.tokenizer
    with closing(llamacpp.load(path)) as drafter:
        started = time.perf_counter()
        ours, theirs = TokenBytes.of(tokenizer), TokenBytes.of(drafter.tokenizer)
        shared = SharedVocabulary.of(tokenizer, ours, drafter.tokenizer, theirs)
        yield f"matching two vocabularies: {1e3 * (time.perf_counter() - started):.0f} ms"
        retokenizer = Retokenizer(ours, Speller(drafter.tokenizer, theirs), {})
        text = tokenizer.encode(" ".join(p.text for p in built_in_prompts()), special=False)
        context = drafter.open(_PASSES + 1)
        one = drafter.tokenizer.encode("a", special=False)[:1]
        passes = [_seconds(lambda: context.forward(one, 1)) for _ in range(_PASSES)]
        one_pass = statistics.median(passes)
        row = context.forward(one, 1)[0].copy()
        follow = [
            _seconds(lambda end=end: retokenizer.follow(text[:end])) for end in range(len(text))
        ]
        yield f"one pass of the drafter: {1e6 * one_pass:.0f} us"
        yield f"following the text, for each token: {_beside(statistics.fmean(follow), one_pass)}"
        for settings in (SamplingSettings(), SamplingSettings(1.0, 0, 1.0, 0.0)):
            q_draft = warp(row, settings)
            taken = [_seconds(lambda q=q_draft: shared.restricted(q)) for _ in range(200)]
            cost = _beside(statistics.median(taken), one_pass)
            yield f"restricting {len(q_draft.ids):,} probabilities: {cost}"


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _beside(seconds: float, one_pass: float) -> str:
    return f"{1e6 * seconds:.0f} us, {seconds / one_pass:.1%} of a pass"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--draft-length", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    arguments = parser.parse_args()
    path = demo_path()
    assert path is not None
    with TemporaryDirectory() as folder, closing(llamacpp.load(path)) as target:
        store = SelfDrafts(Path(folder))
        own = store.get(target.info, Recipe("q4_0"), lambda _done, _total: None)
        files = {"own vocabulary": own}
        for name, change in _CHANGES.items():
            files[name] = Path(folder) / f"{name}.gguf"
            change_vocabulary(own, files[name], change)
        for line in costs(target, files["permuted"]):
            print(line, flush=True)
        how = (arguments.temperature, arguments.draft_length, arguments.tokens)
        for name, file in files.items():
            print(f"{name}: {acceptance(target, file, *how)}", flush=True)


if __name__ == "__main__":
    main()
