"""What a step says of the shape of its draft, and of whose tokens it was made."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from decoding.draft import NO_DRAFT, Draft, KeepOn, PointMassTree, SampledLine
from decoding.events import Shape, Step, in_words
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings, point_mass
from decoding.telemetry import Statistics
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain, certain_tree

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

N_VOCAB = 6
LENGTH = 40
GREEDY = SamplingSettings(temperature=0.0)
SEVEN = tuple(range(7))
SELECTED = Draft(SampledLine((1, 2), (point_mass(1), point_mass(2)), width=3), "", (0.5,) * 2)


class Bushy(IdleDrafter):
    """Drafts every next token but one, and two more below each of them."""

    name = "bushy"

    def __init__(self, left_out: int) -> None:
        self._first = [token for token in range(N_VOCAB) if token != left_out]

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        if limit < 2:
            return super().propose(history, limit, keep_on)
        first = self._first
        below = [node for node in range(len(first)) for _ in range(2)]
        tokens = (*first, *(token for _ in first for token in (0, 1)))
        return Draft(
            PointMassTree(tokens, (*(-1 for _ in first), *below)),
            self.name,
            (0.5,) * len(tokens),
        )


def test_accepted_tokens_are_told_by_the_branch_that_stands(
    table: Callable[..., np.ndarray], fake_context: Callable[..., "FakeContext"]
) -> None:
    statistics = Statistics(0.0)
    drafter = Bushy(left_out=3)
    context = fake_context(table(5), n_ctx=200, n_chunk=32)
    accepted = 0
    for event in generate(
        context, [1, 2], GREEDY, Limits(LENGTH, frozenset()), drafters=always(drafter)
    ):
        statistics.add(event)
        if not isinstance(event, Step) or not event.drafted:
            continue
        accepted += event.accepted
        assert (event.shape, event.width, event.drafted) == (Shape.TREE, 10, 15)
        assert event.provenance[: event.accepted] == ("bushy",) * event.accepted
    assert accepted > 20
    assert statistics.by_drafter.keys() == {"bushy"}
    assert sum(one.accepted for one in statistics.by_drafter.values()) == statistics.accepted
    assert sum(one.drafted for one in statistics.by_drafter.values()) == statistics.drafted


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (NO_DRAFT, "nothing drafted"),
        (certain((1, 2)), "line of 2"),
        (SELECTED, "1 of 3 paths of 2"),
        (certain_tree(SEVEN, (-1, -1, 0, 0, 1, 2, 2)), "tree of 7 in 4 branches"),
        (certain_tree(SEVEN, (-1, 0, 1, 2, 3, 4, 5)), "tree of 7 in 1 branch"),
        (certain_tree(SEVEN, (-1, 0, 0, -1, 3, 4, 5), window_tokens=4), "tree of 3 in 2 branches"),
        (certain_tree((4, 5), (-1, 0), window_tokens=2), "nothing drafted"),
    ],
)
def test_a_shape_in_words(draft: Draft, words: str) -> None:
    assert in_words(draft.shape, draft.drafted, draft.width) == words
