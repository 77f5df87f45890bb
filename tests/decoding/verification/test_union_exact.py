"""Replies drafted by the union of several drafters have the law of plain ones: enumerated."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import Draft, KeepOn
from decoding.estimation.cost import CostModel
from decoding.events import Shape
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import warp
from decoding.verification import rules, target_pass
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import DENSE, N_VOCAB, Path, Prefix, SymbolicUniform
from tests.fixtures.forms import certain
from tests.fixtures.replied import replied, said

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

LENGTH = 5
START = [0, 1]
FLAT = {1: 1.0, 16: 1.01}
Open = Callable[..., "FakeContext"]
Tables = Callable[..., NDArray[np.float32]]


class Table(IdleDrafter):
    """Proposes what is likeliest after the last two tokens by a table of its own."""

    def __init__(self, name: str, table: NDArray[np.float32]) -> None:
        self.name = name
        self._likeliest = table.argmax(axis=-1)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        text = list(history)
        for _ in range(min(limit, 3)):
            text.append(int(self._likeliest[text[-2], text[-1]]))
        return certain(text[len(history) :], self.name, 0.6)


@pytest.mark.usefixtures("symbolic")
@pytest.mark.parametrize("seed", range(3))
def test_replies_have_the_law_of_the_target(
    seed: int, table: Tables, fake_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, near, far = (table(seed + 10 * place, N_VOCAB) for place in range(3))
    path = Path()
    for module in (rules, target_pass):
        monkeypatch.setattr(module, "uniform", lambda _: SymbolicUniform(path))
    emitted: dict[Prefix, float] = defaultdict(float)
    shapes: set[Shape] = set()
    accepted = 0
    waiting: list[Prefix] = [()]
    while waiting:
        path = Path(waiting.pop())
        drafters = [
            ManagedDrafter(Table("near", rows + near)),
            ManagedDrafter(Table("far", rows + far)),
        ]
        controller = Controller(drafters, CostModel(FLAT), N_VOCAB, max_branches=4)
        limits, clock = Limits(LENGTH, frozenset()), count(0.0).__next__
        found = replied(fake_context(rows), START, DENSE, limits, controller, clock)
        emitted[tuple(said(found))] += path.probability
        shapes |= {step.shape for step in found}
        accepted += sum(step.accepted for step in found)
        waiting += path.untaken
    assert sum(emitted.values()) == pytest.approx(1.0, abs=1e-12)
    expected = {reply: chance(rows, reply) for reply in product(range(N_VOCAB), repeat=LENGTH)}
    distance = sum(abs(emitted[reply] - likely) for reply, likely in expected.items()) / 2
    assert distance < 1e-9
    assert Shape.TREE in shapes
    assert accepted > 0


def chance(rows: NDArray[np.float32], reply: Prefix) -> float:
    """Of a reply, if the target speaks alone."""
    text, likely = list(START), 1.0
    for token in reply:
        likely *= warp(rows[text[-2], text[-1]], DENSE).of(token)
        text.append(token)
    return likely
