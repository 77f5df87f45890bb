"""Tokens are counted beside an answer without delaying it noticeably."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from app.engine.prompt_builder import TokenCounts

if TYPE_CHECKING:
    from backends.base import Tokenizer


class Slow:
    """A tokenizer that takes a second of its own clock for a text."""

    def __init__(self) -> None:
        self.now = 0.0

    def encode(self, text: str, *, special: bool) -> list[int]:
        self.now += 1.0
        return [0] * len(text)


def asked(texts: Iterator[str] | list[str]) -> tuple[Slow, TokenCounts, list[int]]:
    slow, done = Slow(), list[int]()
    counts = TokenCounts(lambda: slow.now)
    for text in texts:
        counts.ask(text).add_done_callback(lambda future: done.append(future.result()))
    return slow, counts, done


def test_all_are_counted_while_nothing_is_answered() -> None:
    slow, counts, done = asked(["a", "bc", "def"])
    counts.count_all(cast("Tokenizer", slow))
    assert done == [1, 2, 3]


def test_counting_takes_a_small_share_of_an_answer() -> None:
    slow, counts, done = asked(["a", "bc"])
    tokenizer = cast("Tokenizer", slow)
    counts.count_beside(tokenizer)
    assert done == [1]
    slow.now += 40.0
    counts.count_beside(tokenizer)
    assert done == [1]
    slow.now += 10.0
    counts.count_beside(tokenizer)
    assert done == [1, 2]


def test_a_cancelled_count_takes_no_time() -> None:
    slow, counts, _ = asked([])
    assert counts.ask("a").cancel()
    counts.count_all(cast("Tokenizer", slow))
    assert slow.now == 0.0
