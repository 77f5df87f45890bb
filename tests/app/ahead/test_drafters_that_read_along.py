"""Drafters that read along draft as ones that read only the prompt, whatever was taken back."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from types import ModuleType

import pytest

from app.ahead.piece_reader import PieceReader
from app.loading.target_context import TargetContext
from backends.base import Context, Model
from decoding.drafters.base import Reader
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.kinds import Tiny

GREEDY = SamplingSettings(temperature=0.0)
DRAFTED = 4
TRIALS = 12
CHEAP = DraftCost(0.01, 0.005)
Rig = Callable[[str], "Typed"]


class Typed:
    """A prompt that grows and changes at random, read by a model and drafters beside it."""

    def __init__(self, model: Model, contexts: Sequence[Context], chance: random.Random) -> None:
        target, self.beside, self.fresh = contexts
        sharing = [self._drafter(model, self.beside) for _ in range(2)]
        managed = [ManagedDrafter(one, cost=CHEAP) for one in sharing]
        costs = CostModel(Measured({1: 1.0, 16: 1.5}))
        self.controller = Controller(managed, costs, model.info.n_vocab)
        self.reader = PieceReader(TargetContext(model, target), lambda: self.controller)
        self.alone = self._drafter(model, self.fresh)
        self.random = chance
        self.tokens = self.more(60)

    @staticmethod
    def _drafter(model: Model, context: Context) -> DraftModel:
        return DraftModel("lines", context, n_vocab=model.info.n_vocab)

    def more(self, most: int) -> list[int]:
        return [self.random.randrange(3, 250) for _ in range(self.random.randint(1, most))]

    def change(self) -> None:
        place = self.random.randint(0, len(self.tokens))
        kept = self.tokens if self.random.random() < 0.6 else self.tokens[:place]
        self.tokens = [*kept, *self.more(20)][:200]

    def read(self) -> None:
        """All of the prompt by the model; by the drafter as many pieces as there is time for."""
        while self.reader.read(self.tokens, 0.0):
            pass
        left = iter(range(self.random.choice((0, 1, 3, 1000))))
        seconds = self.random.choice((0.02, 0.1, 1.0))  # of 4, 20 and 200 tokens
        self.reader.read_along(self.tokens, seconds, lambda: next(left, None) is not None)

    def is_as_alone(self) -> bool:
        """Whether all draft alike of the next reply, which begins as every one does."""
        prompt = [*self.tokens, *self.more(5)]
        self.reader.hand_over(prompt)
        self.controller.begin(prompt, Sampler(GREEDY))
        for _ in self.controller.read(prompt):
            pass
        drafters = [one.drafter for one in self.controller.drafters]
        self.random.shuffle(drafters)
        self.alone.begin(prompt, Sampler(GREEDY))
        drafts = [one.propose(prompt, DRAFTED).tokens for one in (*drafters, self.alone)]
        for one in drafters:
            one.commit(prompt)
        return len(set(drafts)) == 1 and self.beside.tokens[: len(prompt)] == prompt


@pytest.fixture
def rig(llamacpp: ModuleType, tiny: Tiny) -> Iterator[Rig]:
    with ExitStack() as stack:

        def begin(kind: str) -> Typed:
            model = stack.enter_context(closing(llamacpp.load(tiny(kind))))
            contexts = [stack.enter_context(closing(model.open(256))) for _ in range(3)]
            return Typed(model, contexts, random.Random(kind))

        yield begin


def differences(typed: Typed) -> int:
    """Replies of which a drafter drafts something else than one that read only the prompt."""
    found = 0
    for _ in range(TRIALS):
        for _ in range(typed.random.randint(1, 6)):
            typed.change()
            typed.read()
        found += not typed.is_as_alone()
    assert [managed.dropped for managed in typed.controller.drafters] == ["", ""]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gemma4", "lfm2", "qwen35"])
def test_they_draft_as_ones_that_read_only_the_prompt(rig: Rig, kind: str) -> None:
    """Also where a context has a running state, or forgets what is out of its window."""
    assert differences(rig(kind)) == 0


def test_ones_that_keep_what_was_taken_back_are_found(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believes(reader: Reader, history: Sequence[int]) -> None:
        reader._committed = len(history)
        reader._agreed = min(reader._agreed, len(history))

    monkeypatch.setattr(Reader, "begin", believes)
    assert differences(rig("llama")) > 0
