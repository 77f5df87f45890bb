"""What drafting is worth where passes cost nearly alike.

Run: `python -m scripts.streaming.measure_flat_curve`.

Run: `python -m scripts.streaming.measure_flat_curve`.

Texts and drafts are real: the bundled model answers the built-in prompts, and its own Q4_0 copy
drafts. Time is simulated: a pass takes what a streamed model's was measured to take, so that a
curve of hours is tried in minutes.
"""

import argparse
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, cast

from app.drafting.composed_drafter import BY_RANK
from backends import llamacpp
from backends.base import Context, Logits, Model
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.sampled_tree import SampledTree, TreeByTemperature
from decoding.estimation.calibration import calibrate
from decoding.estimation.cost import CostModel, DraftCost, TreeSize
from decoding.estimation.draft_cost import LevelCost
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.draft_length import likeliest
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.settings import SamplingSettings
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from models.stores.available_models import demo_path
from scripts.prompts import tokenized

CURVES: dict[str, tuple[float, Mapping[int, float]]] = {
    "mapped": (0.873, {1: 1.0, 2: 1.16, 4: 1.18, 8: 1.15, 16: 1.27, 32: 1.48, 64: 1.67}),
    "locked": (0.522, {1: 1.0, 2: 1.19, 4: 1.23, 8: 1.28, 16: 1.50, 32: 1.75, 64: 2.33}),
}
"""Seconds of a plain step, and passes in plain steps: a 1.1B body in Q8_0 under 900 MB of memory,
mapped, and with its first 600 MB locked."""

_DRAW, _READ = 0.007, 0.002
"""Seconds that the drafter takes for a token, and for each further one of a pass: measured."""

_CONTEXT = 1024


@dataclass(slots=True)
class Clock:
    """Simulated time in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """A context whose passes advance a clock by what they would take."""

    def __init__(self, inner: Context, clock: Clock, seconds: Callable[[int], float]) -> None:
        self._inner, self._clock, self._seconds = inner, clock, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._clock.now += self._seconds(len(tokens))
        return self._inner.forward(tokens, n_logits)

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._clock.now += self._seconds(len(tokens))
        return self._inner.forward_tree(tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._clock.now += self._seconds(len(tokens))
        return self._inner.grow_tree(tokens, parents)


@dataclass(slots=True)
class Reply:
    """A reply: its tokens, the seconds after the first, and what its steps drafted and kept.

    rate: tokens per plain step.
    """

    text: tuple[int, ...] = ()
    seconds: float = 0.0
    rate: float = 0.0
    drafted: list[int] = field(default_factory=list[int])
    accepted: list[int] = field(default_factory=list[int])


class _Of(TypedDict):
    """What each drafter is told of the target."""

    n_vocab: int
    end_tokens: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its drafter, on a simulated clock."""

    target: Model
    drafter: Model
    clock: Clock
    context: Context
    draft_context: Context

    def controller(self, forms: str, costs: CostModel, size: TreeSize) -> Controller:
        """A controller of the named forms, such as "lines+trees+free"; size: of the trees."""
        n_vocab, context = self.target.info.n_vocab, self.draft_context
        named = _Of(n_vocab=n_vocab, end_tokens=self.target.tokenizer.end_tokens)
        lines = ManagedDrafter(DraftModel("line", context, **named), cost=DraftCost(_DRAW, _READ))
        members = [lines] if "lines" in forms else []
        if "trees" in forms:
            shape = likeliest(BY_RANK, size.nodes, size.depth)
            grown = DynamicTree("tree", context, TreeSize(shape.depth, shape.nodes), **named)
            tree = TreeByTemperature("tree", grown, SampledTree("tree", context, shape, **named))
            levels = LevelCost(_DRAW, _READ, shape.widths)
            beside = lines if "lines" in forms else None
            members.append(
                ManagedDrafter(tree, cost=levels, tree=tree.largest, planned=tree, lines=beside)
            )
        if "free" in forms:
            members.append(ManagedDrafter(PromptLookup()))
        branches = self.context.max_branches
        return Controller(members, costs, n_vocab, self.clock, max_branches=branches)

    def reply(
        self, controller: Controller | None, prompt: Sequence[int], settings: SamplingSettings,
        tokens: int,
    ) -> Reply:  # fmt: skip
        """Generate a reply; the time from its first token on."""
        found = Reply()
        limits = Limits(tokens, frozenset())
        begun = 0.0
        events = generate(
            self.context, prompt, settings, limits, drafters=always(controller), clock=self.clock
        )
        for event in events:
            if isinstance(event, Step):
                found.text += event.tokens
                begun = begun or event.at
                found.seconds = event.at - begun
                found.drafted.append(event.drafted)
                found.accepted.append(event.accepted)
        return found


def seconds_of(plain: float, curve: Mapping[int, float]) -> Callable[[int], float]:
    """Seconds of a pass by its number of tokens: straight lines, the last one extended."""
    points = sorted(curve)

    def seconds(n: int) -> float:
        below = max(point for point in points[:-1] if point <= n)
        above = points[points.index(below) + 1]
        slope = (curve[above] - curve[below]) / (above - below)
        return plain * (curve[below] + slope * (n - below))

    return seconds


@contextmanager
def pair(of_pass: Callable[[int], float]) -> Generator[Pair]:
    """The bundled model with passes of simulated length, and its copy in Q4_0."""
    path = demo_path()
    assert path is not None, "the bundled model is not installed"
    target = llamacpp.load(path)
    with TemporaryDirectory() as folder:
        store = SelfDrafts(Path(folder))
        recipe = Recipe.parse("q4_0")
        drafter = llamacpp.load(store.get(target.info, recipe, lambda _done, _total: None))
    clock = Clock()
    context = cast("Context", Timed(target.open(_CONTEXT), clock, of_pass))
    drafting = cast(
        "Context",
        Timed(drafter.open(_CONTEXT), clock, lambda n: _DRAW + (n - 1) * _READ),
    )
    try:
        yield Pair(target, drafter, clock, context, drafting)
    finally:
        drafter.close()
        target.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", choices=list(CURVES), default="mapped")
    parser.add_argument("--forms", nargs="*", default=["lines", "trees", "lines+trees+free"])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--every", type=int, default=1, help="one prompt of so many")
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--depth", type=int, default=24)
    arguments = parser.parse_args()
    plain, curve = CURVES[arguments.curve]
    of_pass = seconds_of(plain, curve)
    with pair(of_pass) as both:
        prompts = [prompt for _, prompt in tokenized(both.target)[:: arguments.every]]
        started = both.clock.now
        measured = calibrate(both.context, prompts[0] * 8, both.clock)
        spent = both.clock.now - started
        points = ", ".join(
            f"{n} {s / measured.seconds[1]:.2f}" for n, s in measured.seconds.items()
        )
        print(f"calibration {spent:.1f} s: {points}")
        for forms in arguments.forms:
            size = TreeSize(arguments.depth, arguments.nodes)
            controller = both.controller(forms, CostModel.of(measured), size)
            replies: list[Reply] = []
            for seed, prompt in enumerate(prompts):
                settings = SamplingSettings(arguments.temperature, seed=seed)
                replies.append(both.reply(controller, prompt, settings, arguments.tokens))
                replies[-1].rate = (len(replies[-1].text) - 1) / replies[-1].seconds * plain
            rates = [reply.rate for reply in replies]
            drafted = [count for reply in replies for count in reply.drafted[1:]]
            accepted = [count for reply in replies for count in reply.accepted[1:]]
            print(
                f"{forms:18} median {statistics.median(rates):.2f} x plain, first {rates[0]:.2f}, "
                f"least {min(rates):.2f}; a step drafts {statistics.fmean(drafted):.1f} "
                f"(at most {max(drafted)}) and keeps {statistics.fmean(accepted):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
