"""Copies of hidden states, in step with the tokens of a context."""

import numpy as np
import pytest

from backends.heads.hidden_states import HiddenStates, Rows

WIDTH = 2


class Passes:
    """Passes whose rows count up."""

    def __init__(self, most: int) -> None:
        self.states = HiddenStates(self.read, WIDTH, most)
        self.has_memory = True
        self._next = 0

    def read(self, count: int) -> Rows:
        if not self.has_memory:
            raise MemoryError
        self._next += count
        return np.repeat(np.arange(self._next - count, self._next, dtype=np.float32), WIDTH)[
            :, np.newaxis
        ].reshape(count, WIDTH)

    def known(self) -> list[int]:
        states = self.states
        return states.rows(states.first, states.end)[:, 0].astype(int).tolist()


def test_rows_follow_the_tokens() -> None:
    passes = Passes(100)
    passes.states.passed(0, 4)
    passes.states.passed(4, 3)
    passes.states.cut(5)
    passes.states.passed(5, 2)
    assert passes.known() == [0, 1, 2, 3, 4, 7, 8]


def test_what_was_passed_before_is_unknown() -> None:
    passes = Passes(100)
    passes.states.passed(10, 2)
    assert (passes.states.first, passes.states.end) == (10, 12)


def test_rows_for_which_there_is_no_memory_are_unknown() -> None:
    """A head does without them, rather than a reply with its model."""
    passes = Passes(1000)
    passes.states.passed(0, 4)
    passes.has_memory = False
    passes.states.passed(4, 100)
    assert (passes.states.first, passes.states.end, passes.states._rows) == (104, 104, [])
    passes.has_memory = True
    passes.states.passed(104, 2)
    assert passes.known() == [4, 5]


def test_a_path_of_a_tree_is_kept() -> None:
    passes = Passes(100)
    passes.states.passed(0, 2)
    passes.states.passed_nodes(3)
    passes.states.passed_nodes(2)
    passes.states.committed(2, [1, 4])
    assert passes.known() == [0, 1, 3, 6]


def test_of_long_texts_the_oldest_are_forgotten() -> None:
    passes = Passes(8)
    for place in range(0, 20, 2):
        passes.states.passed(place, 2)
    assert passes.states.end == 20
    assert passes.known() == list(range(passes.states.first, 20))
    assert len(passes.known()) == 8


@pytest.mark.parametrize("position", range(8))
def test_what_was_released_may_be_forgotten(position: int) -> None:
    passes = Passes(100)
    passes.states.passed(0, 6)
    passes.states.release(position)
    assert passes.states.first <= position
    passes.states.passed(6, 2)
    assert passes.known() == list(range(passes.states.first, 8))


def test_memory_is_that_of_what_is_known() -> None:
    passes = Passes(12)
    for place in range(0, 40, 2):
        passes.states.passed(place, 2)
        assert len(passes.states._rows) == min(place + 2, 12)
    passes.states.release(39)
    assert len(passes.states._rows) == 1
    passes.states.cut(0)
    assert not passes.states._rows
