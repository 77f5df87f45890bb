"""What only the real program and the bundled model in a real terminal show of the app."""

import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from app.bench.suites import SUITES, tasks
from app.paths import Paths
from tests.fixtures.tmux import Terminal, needs_tmux

pytestmark = [needs_tmux, pytest.mark.slow, pytest.mark.usefixtures("llamacpp")]

Open = Callable[..., Terminal]

READY, QUEUES = "Ask anything", "it will be queued"
COPY = "Repeat this text exactly: "
LETTER = (
    "The weather here is often rainy, so it is wise to bring an umbrella when you come. From the "
    "station you walk along the river for ten minutes; our house is the one with the green door. "
)
STORY = "Tell a very long story about a lighthouse."
LOOKUP_HUE = "38;2;43;181;138"
"""The hue of lookup in the dark theme."""
_RGB = re.compile(r"[34]8;2;(\d+);(\d+);(\d+)")
_COMPARED = re.compile(r"× plain|even with plain|slower than plain")


@pytest.fixture
def terminal() -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, tokens: int = 2048, **options: object) -> Terminal:
        variables = (f"SPECCHAT_MAX_TOKENS={tokens}", *options.pop("variables", ()))  # type: ignore[misc]
        opened.append(Terminal(arguments, variables, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def started(shown: str) -> bool:
    """Whether the model is there."""
    return "demo model" in shown.partition("\n")[0] and READY in shown


def answers(*, ended: bool = False) -> list[str]:
    """Texts of all saved answers; ended: only of those that have ended."""
    with closing(sqlite3.connect(Paths.of_this_user().history)) as connection:
        found = connection.execute("SELECT text, ending FROM messages WHERE role = 'assistant'")
        return [text for text, ending in found if ending or not ended]


def until_answered(one: Terminal, count: int) -> str:
    """Wait until so many answers have ended; returns the screen."""
    return one.until(lambda shown: len(answers(ended=True)) >= count and QUEUES not in shown)


@pytest.mark.parametrize("tokens", [40, 120])
@pytest.mark.parametrize("of", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_noise_is_no_figure(terminal: Open, tokens: int, of: int) -> None:
    """One of so many prompts of the bench, answered shortly and at length."""
    one = terminal(tokens=tokens, size=(120, 36))
    one.until(started)
    for task in tasks(SUITES["quick"])[::of]:
        count = len(answers(ended=True))
        one.press("C-n")
        one.until(lambda shown: "New chat" in shown)
        one.paste(task.turns[0])
        one.until(lambda shown: READY not in shown)
        one.press("Enter")
        is_over = False
        while not is_over:
            is_over = len(answers(ended=True)) > count
            shown = one.shown
            assert re.search(r"\b0\.[0-9]+×", shown) is None, shown
            said = [line for line in shown.splitlines() if "this session" not in line]
            if tokens < 64:
                assert not _COMPARED.search("\n".join(said)), shown


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_what_was_said_before_a_crash_goes_on(terminal: Open, number: int) -> None:
    """An engine that finds a fault in itself aborts."""
    one = terminal()
    one.until(started)
    one.ask(STORY)
    shown = one.until(lambda text: STORY in text and QUEUES in text and len(_answer_on(text)) > 100)
    one.kill_app(number)
    (saved,) = answers()
    assert _answer_on(shown) in " ".join(saved.split())

    again = terminal("--continue", tokens=40, size=(80, 40))
    again.until(lambda text: "interrupted · Ctrl+T continues" in text)
    again.until(started)
    if number == signal.SIGABRT:
        again.until(lambda text: "The last start ended in a crash (Aborted)" in text)
    assert ("ended in a crash" in again.shown) is (number == signal.SIGABRT)
    again.press("C-t")
    shown = until_answered(again, 1)
    assert "interrupted" not in shown
    (whole,) = answers()
    assert whole.startswith(saved)
    assert len(whole) > len(saved)


def test_a_crash_in_mid_comparison_loses_no_answer(terminal: Open) -> None:
    one = terminal(tokens=200, variables=("SPECCHAT_TEMPERATURE=1",))
    one.until(started)
    one.ask(STORY)
    until_answered(one, 1)
    one.ask("/again 3")
    one.until(lambda text: "2 · writing" in text and len(answers(ended=True)) >= 2)
    one.press("2")
    finished = answers(ended=True)
    others = " ".join(" ".join(finished[:2]).split())
    shown = one.until(lambda text: len(_column(text)) > 20 and _column(text) not in others)
    one.kill_app()
    assert answers()[: len(finished)] == finished
    assert any(_column(shown) in " ".join(text.split()) for text in answers()[2:])


def _column(shown: str) -> str:
    """The words of the answer chosen of several, but the last; none before it is shown."""
    heads, _, below = shown.partition(" 3 · ")
    lines = below.partition("← →")[0].splitlines()[1:]
    words = " ".join(line for line in lines if " · " not in line and "tok/s" not in line).split()
    return " ".join(words[:-1]) if " 2 · " in heads else ""


def _answer_on(shown: str) -> str:
    """The words of the answer that a screen shows, but the last."""
    lines = shown.rpartition(STORY)[2].partition("╭")[0].splitlines()
    words = " ".join(line for line in lines if "tok/s" not in line and "plain" not in line).split()
    return " ".join(words[:-1])


_DRAFTING_PAYS = """
from specchat import main
from tests.fixtures.costs import cheap_drafting

with cheap_drafting():
    main()
"""
"""The app where drafting costs next to nothing, as on a busy machine it may be paused."""


@pytest.mark.parametrize("variable", ["COLORTERM=truecolor", "NO_COLOR=1"])
def test_what_was_drafted_shows_with_and_without_colour(terminal: Open, variable: str) -> None:
    variables = (variable, "TERM=xterm-256color")
    one = terminal(
        "--draft", "lookup", size=(80, 30), variables=variables, program=("-c", _DRAFTING_PAYS)
    )
    one.until(started)
    one.press("F4")  # the hues stay: the answer, and they with it, might be over before a look
    one.until(lambda text: "stays coloured" in text)
    one.ask(COPY + LETTER * 3)
    until_answered(one, 1)
    if variable == "NO_COLOR=1":
        one.until(lambda _: re.search(r"\x1b\[(?:[0-9;]*;)?4m", one.styled))
        assert all(len(set(rgb)) == 1 for rgb in _RGB.findall(one.styled))
        assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3[1-6]|4[1-6]|9[1-6])m", one.styled)
        return
    one.until(lambda _: LOOKUP_HUE in one.styled)
    one.press("F4")
    one.until(lambda text: "fade again" in text)
    one.until(lambda _: LOOKUP_HUE not in one.styled)
