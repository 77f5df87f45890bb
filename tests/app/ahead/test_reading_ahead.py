"""Reading ahead: when it is due, what it examines, and how much of a text has rested."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from app.ahead.certain_tokens import BegunPrompt
from app.ahead.expected import AheadState, Expectation, Expected
from app.ahead.piece_reader import AheadTime, ReadPieces
from app.ahead.reading_ahead import REST_SECONDS, ReadingAhead, RestedText
from app.chat.conversation import Conversation
from app.paths import Paths
from backends.chat.message import Message


@dataclass
class Bench:
    """Reading ahead with a clock, a reason to refuse and a record of what was examined."""

    now: float = 1000.0
    reason: str = ""
    asked: int = 0
    chat: str = "one"
    changes: list[list[int]] = field(default_factory=list[list[int]])
    examined: list[str] = field(default_factory=list[str])
    states: list[AheadState | None] = field(default_factory=list[AheadState | None])

    def __post_init__(self) -> None:
        self.expectation = Expectation(self.may_read, lambda: 60.0, self.states.append)
        self.pieces = ReadPieces()
        reader: Any = SimpleNamespace(
            pieces=self.pieces,
            read=lambda *_: False,
            read_along=lambda *_: None,
            rest=lambda: None,
            change_message=self.change_message,
        )
        certain: Any = SimpleNamespace(of=self.of)
        context: Any = SimpleNamespace(facts=SimpleNamespace(tokens=[], length=0, n_ctx=4096))
        keeper: Any = SimpleNamespace(prepare=lambda _: False, answered=lambda: None)
        paths = Paths.of_this_user()
        self.reading = ReadingAhead(self.expectation, context, certain, reader, keeper, paths)

    def may_read(self) -> str:
        self.asked += 1
        return self.reason

    def of(self, expected: Expected) -> BegunPrompt:
        self.examined.append(expected.conversation.turns[-1].content)
        if not expected.conversation.turns[-1].content:
            return BegunPrompt()
        return BegunPrompt([1, 2, 3], 3, 3, messages=(Message("user", self.chat),))

    def change_message(self, tokens: list[int]) -> None:
        self.changes.append(tokens)
        self.pieces.lost(7.0)
        self.pieces.change_message(0)

    def type(self, text: str) -> None:
        turns = [Message("user", text)]
        self.expectation.latest = Expected(Conversation("", turns), self.now, False)

    def run(self) -> None:
        self.reading.run(lambda: True)

    def due_in(self) -> float | None:
        return self.reading.due_in(0.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    clock = SimpleNamespace(monotonic=lambda: made.now)
    monkeypatch.setattr("app.ahead.reading_ahead.time", clock)
    return made


def refuse(bench: Bench) -> None:
    bench.reason = "on battery"
    bench.type("a")
    assert bench.due_in() == 0.0
    bench.run()
    assert bench.states[-1] == AheadState(0, 0, "on battery")


def test_refused_reading_is_never_due_to_the_others(bench: Bench) -> None:
    """Else a state whose saving takes longer than that is begun again and again."""
    refuse(bench)
    for _ in range(5):
        due = bench.due_in()
        assert due is not None
        assert due > 0.0
        bench.now += due + 0.25  # past the time at which it is asked again
    asked = bench.asked
    bench.due_in()
    for _ in range(100):
        bench.now += 0.001
        assert bench.due_in()
    assert bench.asked == asked + 1  # once a second


def test_what_was_refused_is_read_once_it_is_allowed(bench: Bench) -> None:
    refuse(bench)
    bench.reason = ""
    assert bench.due_in()
    bench.now += 1.5
    assert bench.due_in() == 0.0
    bench.run()
    assert bench.examined == ["a"]
    assert bench.states[-1] == AheadState(0, 3, "")
    assert bench.due_in() is None


def test_what_is_examined_is_what_is_followed(bench: Bench) -> None:
    bench.type("a")
    bench.run()
    first = bench.expectation.latest
    bench.type("b")
    assert bench.expectation.followed is first
    bench.run()
    assert bench.expectation.followed is bench.expectation.latest


def test_what_is_wasted_on_other_chats_does_not_count_against_the_next_message(
    bench: Bench,
) -> None:
    for text in ("a", "", "ab", "abc"):  # one does not fit, which is no other chat
        bench.type(text)
        bench.run()
    assert bench.changes == []
    bench.chat = "two"
    bench.type("a")
    bench.run()
    assert bench.changes == [[1, 2, 3]]
    bench.type("ab")
    bench.run()
    assert bench.changes == [[1, 2, 3]]
    bench.reading.keep_account()
    assert AheadTime.kept(Paths.of_this_user()).wasted == 7.0


def test_a_reason_goes_with_what_was_expected(bench: Bench) -> None:
    refuse(bench)
    bench.expectation.latest = None
    assert bench.due_in() == 0.0
    bench.run()
    assert bench.states[-1] is None
    assert bench.due_in() is None


def test_nothing_is_examined_while_reading_is_refused(bench: Bench) -> None:
    refuse(bench)
    for text in ("ab", "abc", "abcd"):
        bench.type(text)
        assert bench.due_in()  # else the engine's thread would spin
        bench.now += 0.1
    bench.now += 2.0
    bench.type("abcde")
    assert bench.due_in()
    bench.run()
    assert bench.examined == []


def test_what_is_certain_has_rested_at_once() -> None:
    text = RestedText()
    assert text.length(5.0) == 0
    assert text.next_in(5.0) is None
    text.update([1, 2, 3], float("-inf"))
    assert text.length(0.0) == 3
    assert text.next_in(0.0) is None


def test_every_word_is_ready_a_moment_after_it_was_typed_without_any_pause() -> None:
    text = RestedText()
    step = REST_SECONDS / 3.5  # keys never rest as long
    for count in range(1, 20):
        text.update(list(range(count)), count * step)
        assert text.length(count * step) == max(count - 4, 0)
    assert text.next_in(19 * step) == pytest.approx(0.5 * step)
    assert text.length(19 * step + REST_SECONDS) == 19


def test_a_change_makes_only_what_follows_it_rest_again() -> None:
    text = RestedText()
    text.update([1, 2, 3, 4], 0.0)
    text.update([1, 2, 9, 9, 9], 10.0)
    assert text.length(10.0) == 2
    assert text.length(10.0 + REST_SECONDS) == 5
    text.update([1], 20.0)
    assert text.length(20.0) == 1
    assert text.next_in(20.0) is None
    text.update([], 21.0)
    assert text.length(30.0) == 0
