"""The list of chats at every width: search, open, rename in place, remove, and undo of it all."""

import datetime
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest
from textual.widgets import Input

from app.dialogue.tree import Change, Changes
from app.history import Chat, History
from app.learned.registered import Registered, register
from app.paths import Paths
from app.tui.screens.chats import ChatsScreen
from tests.fixtures.hostile import TEXTS
from tests.fixtures.small_app import Shown, compare_screen, small_app

NOW = datetime.datetime(2026, 3, 14, 15, 0).timestamp()
HOUR = 3600.0
TITLES = (
    ("Correct the spelling of letter.md", "qwen3-4b", NOW - 2 * HOUR),
    ("A rate limiter in Go", "qwen3-4b", NOW - 20 * HOUR),
    ("Names for a sailing boat", "demo", datetime.datetime(2026, 3, 3).timestamp()),
    ("Why is the sky blue?", "qwen3-4b", datetime.datetime(2026, 3, 1).timestamp()),
)
QUESTION = "Which words did you change? As Python."
ANSWER = (
    '```python\nchanged = {"wether": "weather", "Aprill": "April", "offen": "often",\n'
    '    "umbrela": "umbrella"}\n```\n'
)


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """The chats of the design, the latest first."""
    with closing(History.open(Paths.of_this_user().history)) as opened:
        for index, (title, model, updated) in enumerate(reversed(TITLES)):
            monkeypatch.setattr("time.time", lambda updated=updated: updated)
            number = opened.create(model)
            opened.add(number, "user", title)
            opened.add(number, "assistant", "Some answer.", "done")
            if index == len(TITLES) - 1:
                opened.add(number, "user", QUESTION)
                opened.add(number, "assistant", ANSWER, "done")
        monkeypatch.setattr("time.time", lambda: NOW)
        yield opened


class Listing(Shown):
    """The list of chats on the screen of a small app."""

    def __init__(self, shown: Shown, history: History) -> None:
        super().__init__(shown.app, shown.pilot)
        self.history = history
        self.changes = Changes()
        self.touched: list[int] = []

    @property
    def titles(self) -> list[str]:
        return [chat.title for chat in self.history.chats()]


@asynccontextmanager
async def listing(history: History, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Listing]:
    async with small_app(size) as shown:
        listed = Listing(shown, history)
        paths = Paths.of_this_user()
        await listed.open(ChatsScreen(history, paths, listed.changes, listed.touched.append))
        yield listed


@pytest.fixture
async def shown(history: History) -> AsyncIterator[Listing]:
    async with listing(history) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 20)])
async def test_the_list_at_every_size(
    history: History,
    size: tuple[int, int],
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _with_states(monkeypatch)
    async with listing(history, size) as shown:
        compare_screen(shown.app, f"chats_{size[0]}x{size[1]}", pytestconfig)


def _with_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chat has two versions, and the last was interrupted."""
    read = History.chats

    def chats(self: History, query: str = "") -> list[Chat]:
        first, *others, last = read(self, query)
        return [replace(first, versions=2), *others, replace(last, is_interrupted=True)]

    monkeypatch.setattr(History, "chats", chats)


async def test_typing_searches_and_enter_opens(shown: Listing, history: History) -> None:
    await shown.press(*"umbrella")
    assert "Correct the spelling" in shown.text
    assert "sailing" not in shown.text
    await shown.press("enter")
    (chosen,) = shown.app.returned
    number, _, text = chosen.partition(" ")
    assert (history.chat(int(number)).title, text) == (TITLES[0][0], "umbrella")


async def test_arrows_move_while_the_search_has_the_focus(shown: Listing, history: History) -> None:
    await shown.press("down", "down", "enter")
    assert history.chat(shown.app.returned[0]).title == TITLES[2][0]


async def test_no_chat_found_opens_nothing(shown: Listing, history: History) -> None:
    await shown.press(*"zzz", "enter", "delete", "f2")
    assert "no chat found" in shown.text
    await shown.press("escape")
    assert shown.app.returned == [None]


async def test_removing_a_chat_tells_what_learned_from_it(shown: Listing, history: History) -> None:
    mark = history.chats()[0].mark
    made = Registered("mine", "hydra", "0", "mine.gguf", "llamacpp")
    register(Paths.of_this_user(), made, [], chats=[mark])
    await shown.press("delete")
    assert "mine learned from it" in shown.text
    await shown.press("delete")
    assert "learned" not in shown.text


async def test_a_chat_without_a_question_is_not_listed(history: History) -> None:
    history.create("demo")
    async with listing(history) as shown:
        assert "untitled" not in shown.text


@pytest.mark.slow
async def test_renaming_in_place_and_undo(shown: Listing, history: History) -> None:
    await shown.press("down", "f2")
    field = shown.app.screen.focused
    assert isinstance(field, Input)
    assert (field.id, field.value, field.region.y) == ("title", TITLES[1][0], 4)
    await shown.press("ctrl+u", *"Limits", "enter")
    assert shown.titles[1] == "Limits"
    assert "▸ Limits" in shown.text
    await shown.press("ctrl+z")
    assert shown.titles[1] == TITLES[1][0]
    await shown.press("ctrl+y")
    assert shown.titles[1] == "Limits"


async def test_leaving_a_title_changes_nothing(shown: Listing, history: History) -> None:
    await shown.press("f2", *"other", "delete", "escape")
    assert shown.titles == [title for title, _, _ in TITLES]
    assert shown.app.returned == []
    await shown.press("escape")
    assert shown.app.returned == [None]


async def test_any_number_of_removals_is_undone(shown: Listing, history: History) -> None:
    await shown.press("delete", "delete", "delete")
    assert shown.titles == [TITLES[3][0]]
    assert "▸ Why is the sky blue?" in shown.text
    await shown.press("ctrl+z", "ctrl+z", "ctrl+z")
    assert shown.titles == [title for title, _, _ in TITLES]
    assert len(shown.touched) == 6


async def test_a_removal_is_undone_from_the_prompt_too(shown: Listing, history: History) -> None:
    await shown.press("delete", "escape")
    assert await shown.changes.undo() == f"removed “{TITLES[0][0]}”"
    assert shown.titles == [title for title, _, _ in TITLES]
    assert await shown.changes.redo() == f"removed “{TITLES[0][0]}”"
    assert shown.titles == [title for title, _, _ in TITLES[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "words"),
    [((80, 24), "removed · Ctrl+Z brings it back"), ((40, 20), "removed · Ctrl+Z undoes")],
)
async def test_a_removal_says_how_to_undo_it_until_the_next_action(
    history: History, size: tuple[int, int], words: str
) -> None:
    async with listing(history, size) as shown:
        for next_key in ("down", "x", "f2", "ctrl+z"):
            await shown.press("delete")
            assert words in shown.text
            await shown.press(next_key)
            assert words not in shown.text
            await shown.press("escape" if next_key == "f2" else "backspace")


async def test_every_key_is_named_at_every_size(history: History) -> None:
    async with listing(history, (40, 20)) as shown:
        assert "Enter open · F2 rename · Del · Esc" in shown.text
        await shown.press("f2")
        assert "Enter renames · Esc keeps it" in shown.text


async def test_long_titles_take_the_room_there_is(history: History) -> None:
    title = "Tell me a story of 500 words, with a list"
    history.rename(history.chats()[1].number, title)
    async with listing(history) as shown:
        assert title in shown.text


async def test_what_was_removed_before_the_screen_opened_comes_back(history: History) -> None:
    history.remove(history.chats()[2].number)
    async with listing(history) as shown:
        await shown.press("ctrl+z")
        assert len(shown.titles) == len(TITLES)
        await shown.press("ctrl+z")
        assert "nothing to undo" in shown.text


async def test_undo_here_leaves_changes_of_the_conversation_alone(
    shown: Listing, history: History
) -> None:
    undone: list[str] = []
    shown.changes.add(_change(undone))
    await shown.press("ctrl+z")
    assert undone == []


def _change(undone: list[str]) -> Change:
    return Change("edited", lambda: undone.append("edit"), lambda: None)


async def test_an_error_is_told_once_below_the_list(shown: Listing, history: History) -> None:
    history.close()
    await shown.press("x")
    assert shown.text.count("✕ cannot use the chats") == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [(10, 3), (40, 20), (120, 36)])
async def test_hostile_titles_at_any_size(history: History, size: tuple[int, int]) -> None:
    for text in TEXTS:
        number = history.create("evil\x1b[2J")
        history.add(number, "user", text)
        history.rename(number, text)
    async with listing(history, size) as shown:
        await shown.press("f2", "escape", "down", "pagedown")
        assert "\x1b" not in shown.text
