"""However a reply ends, at whatever step, its drafters draft the next one, and it is what it was.

Sessions of random replies over contexts of llama.cpp. Lines, trees and paths of one drafter model
share a context, and take turns; between two replies they may read ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Logits, ModelError, PassStoppedError
from decoding.checks.distribution_check import divergences
from decoding.constraint.grammar import ConstraintError
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths, TreeByTemperature
from decoding.drafters.trees import DynamicTree, TreeShape
from decoding.estimation.cost import CostModel, DraftCost, Measured, TreeSize
from decoding.events import Finish, FinishReason, Shape, Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.turns import TakingTurns
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.fragile import Fragile

SIZE = 64
LONGEST = 14
SHAPE = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))
ROUNDING = 0.03
"""Logits by which two tokens may change places: branches move each by up to 0.014 here."""

WORDS = range(300, 340)
ENDINGS = ("length", "closed", "cancelled", "stopped", "failed", "grammar", "drafter stopped")


class Faulty:
    """Hands on to a context; raises a fault in place of one of its next passes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._passes: int | None = None
        self._fault: Exception = PassStoppedError()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def fails(self, passes: int | None, fault: Exception) -> None:
        """Raise a fault after so many passes more; never, if None."""
        self._passes, self._fault = passes, fault

    def _count(self) -> None:
        if self._passes is not None:
            self._passes -= 1
            if self._passes < 0:
                self._passes = None
                raise self._fault

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._count()
        return self._context.forward(tokens, n_logits)

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._count()
        return self._context.forward_tree(tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._count()
        return self._context.grow_tree(tokens, parents)


@dataclass(frozen=True)
class Pair:
    """Contexts of a model and of one that drafts for it, and one of the model for plain replies."""

    target: Faulty
    drafter: Faulty
    plain: Context
    n_vocab: int

    def controller(self) -> Controller:
        """Drafters of every form on one context, each at every step in turn."""
        context: Any = self.drafter
        size, n_vocab = TreeSize(2, 5), self.n_vocab
        trees = TreeByTemperature(
            "trees",
            DynamicTree("trees", context, size, n_vocab=n_vocab),
            SampledTree("trees", context, SHAPE, n_vocab=n_vocab),
        )
        drafters = [
            DraftModel("lines", context, n_vocab=n_vocab),
            trees,
            SeveralPaths("paths", context, 2, 3, n_vocab=n_vocab),
            SampledTree("more trees", context, SHAPE, n_vocab=n_vocab),
        ]
        cost = DraftCost(0.01, 0.001)
        managed = [ManagedDrafter(drafter, cost=cost) for drafter in drafters]
        costs = CostModel(Measured({1: 1.0, 16: 1.1}))
        return TakingTurns(Controller(managed, costs, self.n_vocab), (3, 5))


@pytest.fixture(scope="module")
def pair(tiny_llama: Callable[..., Path]) -> Iterator[Pair]:
    with (
        closing(llamacpp.load(tiny_llama(seed=1), threads=1)) as target,
        closing(llamacpp.load(tiny_llama(seed=1, noise=0.15), threads=1)) as drafter,
    ):
        contexts = Faulty(target.open(SIZE)), Faulty(drafter.open(SIZE))
        yield Pair(*contexts, target.open(SIZE), target.info.n_vocab)


class Session:
    """Replies one after another, by the same drafters."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self._pair = pair
        self._random = np.random.default_rng(seed)
        self._controller = pair.controller()
        self._prompt = self._words(8)
        self.shapes: set[Shape] = set()

    def _words(self, count: int) -> list[int]:
        return self._random.choice(WORDS, count).tolist()

    def run(self) -> None:
        for _ in range(int(self._random.integers(2, 6))):
            ending = str(self._random.choice(ENDINGS))
            said = self._reply(ending, int(self._random.integers(LONGEST)))
            self._prompt = [*self._prompt, *said, *self._words(2)]
            if len(self._prompt) > SIZE - 6:
                self._prompt = self._words(8)
            if self._random.random() < 0.5:
                self._read_ahead()
            dropped = {one.name: one.dropped for one in self._controller.drafters if one.dropped}
            assert not dropped, ending

    def _read_ahead(self) -> None:
        """Of the next prompt, which may yet change, or be more urgent."""
        cut = int(self._random.integers(0, 4))
        text = [*self._prompt[: len(self._prompt) - cut], *self._words(4)]
        pieces = int(self._random.integers(1, 9))
        for _, _ in zip(range(pieces), self._controller.read_ahead(text, 0.02), strict=False):
            pass

    def _reply(self, ending: str, step: int) -> list[int]:
        """A reply that ends so at a step or pass; what it said, which is compared."""
        pair, prompt, said = self._pair, self._prompt, list[int]()
        temperature = float(self._random.choice([0.0, 1.0]))
        seed = int(self._random.integers(1 << 30))
        settings = SamplingSettings(temperature, seed=seed)
        fault = ModelError("it failed") if ending == "failed" else PassStoppedError()
        faulty = pair.drafter if ending == "drafter stopped" else pair.target
        faulty.fails(step if ending in ("stopped", "failed", "drafter stopped") else None, fault)
        grammar = Fragile(lambda text: len(text) >= step) if ending == "grammar" else None
        steps = 0
        events = generate(
            pair.target,  # type: ignore[arg-type]
            prompt,
            settings,
            Limits(max(step, 1) if ending == "length" else LONGEST, frozenset()),
            drafters=always(self._controller),
            constraint=grammar,
            is_cancelled=lambda: ending == "cancelled" and steps >= step,
        )
        reason, error = None, None
        try:
            for event in events:
                if isinstance(event, Finish):
                    reason = event.reason
                if isinstance(event, Step):
                    said += event.tokens
                    steps += 1
                    self.shapes.add(event.shape)
                if ending == "closed" and steps >= step:
                    break
        except ModelError as raised:
            error = raised
        events.close()  # type: ignore[attr-defined]
        faulty.fails(None, fault)
        self._check_ending(ending, step, said, reason, error)
        if temperature == 0.0:
            found = divergences(self._pair.plain, prompt, said)
            assert all(one.margin < ROUNDING for one in found), ending
        return said

    def _check_ending(
        self,
        ending: str,
        step: int,
        said: list[int],
        reason: FinishReason | None,
        error: ModelError | None,
    ) -> None:
        """That it ended as it was meant to, or at its full length before that."""
        if ending == "grammar":
            assert (len(said) == step and isinstance(error, ConstraintError)) or reason is not None
        elif ending == "failed":
            assert (error is not None) != (reason is not None)
        else:
            assert error is None
        if ending in ("cancelled", "stopped", "drafter stopped") and reason is not None:
            whole = len(said) >= LONGEST or reason is FinishReason.CONTEXT
            assert whole or reason is FinishReason.CANCELLED


def run(pair: Pair, seeds: range) -> None:
    shapes: set[Shape] = set()
    for seed in seeds:
        session = Session(pair, seed)
        session.run()
        shapes |= session.shapes
    assert shapes == set(Shape)


def test_sessions_survive_every_ending(pair: Pair) -> None:
    run(pair, range(20))


@pytest.mark.nightly
def test_a_thousand_sessions_survive_every_ending(pair: Pair) -> None:
    run(pair, range(1000))


def test_a_drafter_that_fails_leaves_the_others_their_context(pair: Pair) -> None:
    """Each in turn, in a pass of its own: it alone is dropped."""
    for passes in range(12):
        controller = pair.controller()
        pair.drafter.fails(passes, ModelError("it failed"))
        for prompt in ([300, 301, 302], [300, 301, 302, 303]):
            limits = Limits(LONGEST, frozenset())
            settings = SamplingSettings(1.0, seed=passes)
            for _ in generate(
                pair.target,  # type: ignore[arg-type]
                prompt,
                settings,
                limits,
                drafters=always(controller),
            ):
                pass
        assert len([one for one in controller.drafters if one.dropped]) == 1
