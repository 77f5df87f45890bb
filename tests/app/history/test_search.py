"""Searching in chats: words anywhere in a chat, in any script, and nothing that is an operator."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.history import History
from app.history.schema import matches


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """One chat of two messages, with a title of its own."""
    with closing(History.open(tmp_path / "chats.sqlite3")) as opened:
        chat = opened.create("demo")
        opened.add(chat, "user", "the sky is blue, 100 percent 🌈 50%_off")
        opened.add(chat, "assistant", "Scattering über 蓝色的天空 and naïve café")
        opened.rename(chat, "Öl and colours")
        yield opened


@pytest.mark.parametrize(
    "query",
    [
        "", " \t\n", "sky scattering", "SCATTERING Sky", "sky scatt", "öl", "OL", "colours sky",
        "ÜBER", "cafe", "天空", "sky 蓝色", "🌈", "🌈 sky", "%_", "blue, 100", "sky*", "AND",
        "100%", '"sky', "sky\0blue", "sky " * 2000,
    ],
)  # fmt: skip
def test_found(history: History, query: str) -> None:
    assert len(history.chats(query)) == 1


@pytest.mark.parametrize(
    "query",
    [
        "sky missing", "scatt sky", "sky OR missing", "OR", "200%", "NOT sky", "NEAR(sky blue)",
        "text:sky", '"', '""', "'", "*", "^", "-(", "%%", "_%", "\\", "💥", "地", "地" * 100_000,
        "🌈" * 100_000, "\ud800", "\0", ") OR 1 = 1 --",
    ],
)  # fmt: skip
def test_not_found(history: History, query: str) -> None:
    assert len(history.chats(query)) == (query == "\0")  # as nothing but a space


def test_as_many_as_are_wanted(history: History) -> None:
    for _ in range(3):
        history.add(history.create("demo"), "user", "sky")
    assert len(history.chats("sky", limit=2)) == len(history.chats(limit=2)) == 2


def test_an_answer_is_found_while_it_grows_after_it_ended_and_when_it_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "growing.sqlite3"
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        answer = history.add(chat, "assistant", "a narw", writer="1 1.0")
        history.update(answer, "a narwhal", writer="1 1.0")
        assert len(history.chats("narwhal")) == 1
        assert history.chats("walrus") == []
        history.update(answer, "a narwhal and a walrus", "6 tokens")
        assert len(history.chats("narwhal walrus")) == 1
        history.update(answer, "a narwhal and a walrus with", writer="1 1.0")
        assert len(history.chats("walrus with")) == 1
        history.update(answer, "a narwhal and a walrus with tusks", "9 tokens")
        assert len(history.chats("narwhal tusks")) == 1
        history.withdraw(chat, answer)
        assert history.chats("narwhal") == []
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")


def test_titles_come_first_the_one_that_is_searched_before_all(tmp_path: Path) -> None:
    with closing(History.open(tmp_path / "chats.sqlite3")) as history:
        for title, answer in (
            ("A Café in Go", "nothing"),
            ("Words of it", "nothing"),
            ("Go: a café in town", "nothing"),
            ("another", "I sat in a café in Go, in town"),
        ):
            chat = history.create("demo")
            history.add(chat, "user", title)
            history.add(chat, "assistant", answer, "done")
        assert [chat.title for chat in history.chats("a cafe in go")] == [
            "A Café in Go",
            "Go: a café in town",
            "another",
        ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("café in", ["Cafe\nin"]),
        ("CAFE", ["Cafe", "café"]),
        ("town cafe", ["Cafe", "café", "town"]),
        ("a.c", []),
        ("", []),
    ],
)
def test_where_a_query_stands_in_a_text(query: str, found: list[str]) -> None:
    text = "Cafe\nin X, ein café; a(c town \ud800"
    assert [text[start:end] for start, end in matches(text, query)] == found
