"""The table of n-grams: bounded, recent speech wins, and nothing is found that was not learned."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.ngram import N_BYTES, SLOTS, NgramTable, state_of, token_of

WAYS = 4
EPOCH = 1 << 15
common = settings(max_examples=50)
keys = st.integers(0, 2**64 - 1)
tokens = st.integers(0, 300_000)
pairs = st.lists(st.tuples(keys, tokens), max_size=60)
apart = st.dictionaries(st.integers(0, 10_000).map(lambda number: number << 20), tokens)
"""Tokens by keys of different sets."""


def learned(found: Sequence[tuple[int, int]]) -> NgramTable:
    table = NgramTable()
    for key, token in found:
        table.learn(key, token)
    return table


def in_one_set(number: int) -> int:
    """A key of the first set, one of 65,535 that are told apart."""
    return number + 1


@common
@given(keys)
def test_nothing_is_found_before_something_is_learned(key: int) -> None:
    assert NgramTable().find(key) == 0


@common
@given(apart)
def test_the_token_of_a_context_is_found(found: dict[int, int]) -> None:
    table = learned(list(found.items()))
    assert all(token_of(table.find(key)) == token for key, token in found.items())


def test_it_takes_16_megabytes_at_most() -> None:
    table = NgramTable()
    assert table._all.nbytes == N_BYTES <= 16_000_000


def test_a_set_holds_no_more_than_it_has_room_for() -> None:
    table = learned([(in_one_set(number), number) for number in range(100)])
    assert table.contents.slots.tolist() == list(range(WAYS))
    kept = [number for number in range(100) if table.find(in_one_set(number))]
    assert len(kept) == WAYS
    assert 99 in kept


def test_what_is_said_often_outlives_what_is_said_once() -> None:
    table = learned([(in_one_set(0), 7)] * 5)
    for number in range(1, 100):
        table.learn(in_one_set(number), number)
    assert token_of(table.find(in_one_set(0))) == 7


def test_what_was_said_often_long_ago_gives_way() -> None:
    table = learned([(in_one_set(0), 7)] * 5)
    table.learned = 4 * EPOCH
    for number in range(1, WAYS + 1):
        table.learn(in_one_set(number), number)
    assert table.find(in_one_set(0)) == 0


@pytest.mark.parametrize("times", [1, 10, 10_000])
def test_a_new_habit_replaces_an_old_one_however_long_it_lasted(times: int) -> None:
    table = learned([(5, 1)] * times)
    assert token_of(table.find(5)) == 1
    for _ in range(8):
        table.learn(5, 2)
    assert token_of(table.find(5)) == 2


def test_one_slip_does_not_replace_a_habit() -> None:
    table = learned([(5, 1)] * 3 + [(5, 2)])
    assert token_of(table.find(5)) == 1
    assert state_of(table.find(5)) == 2 << 3 | 1


@common
@given(pairs, pairs)
def test_what_is_copied_goes_on_as_the_original(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    table = learned(before)
    copy = NgramTable.of(table.contents)
    for key, token in after:
        table.learn(key, token)
        copy.learn(key, token)
    ours, theirs = table.contents, copy.contents
    assert ours.slots.tolist() == theirs.slots.tolist()
    assert ours.entries.tolist() == theirs.entries.tolist()
    assert ours.is_sound(300_001)


def test_contents_that_cannot_be_are_told() -> None:
    contents = learned([(5, 1), (1 << 40, 9)]).contents
    assert contents.is_sound(10)
    assert not contents.is_sound(9)
    assert not replace(contents, slots=contents.slots[::-1].copy()).is_sound(10)
    assert not replace(contents, slots=contents.slots + np.uint32(SLOTS)).is_sound(10)
    never_right = contents.entries.copy()
    never_right["word"] &= ~np.uint32(63)
    assert not replace(contents, entries=never_right).is_sound(10)
