"""Which parts of a growing reply were drafted: by tokens, whatever of them is released when."""

from dataclasses import replace

import pytest

from app.engine.reply import Reply
from app.tui.chat.colours import DraftedRuns
from app.tui.look import kind_of
from tests.fixtures.sessions import new_reply


def reply(text: str, *tokens: tuple[int, str]) -> Reply:
    """A reply with tokens given by the end of their text and their origin."""
    made = new_reply()
    made.text, made.token_ids = text, list(range(len(tokens)))
    made.token_ends, made.provenance = [end for end, _ in tokens], [name for _, name in tokens]
    return made


def drafted(runs: DraftedRuns, name: str) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in runs.between(0, 99) if one.style == kind_of(name).hue]


def test_neighbours_of_one_origin_are_one_run() -> None:
    runs = DraftedRuns()
    runs.follow(reply("abcd", (1, "model"), (2, "lookup"), (3, "lookup"), (4, "model")), 0.0)
    assert drafted(runs, "lookup") == [(1, 3)]


def test_a_token_without_text_has_no_run() -> None:
    runs = DraftedRuns()
    runs.follow(reply("ab", (1, "model"), (1, "lookup"), (2, "model")), 0.0)
    assert runs.between(0, 99) == []


def test_text_that_was_held_back_keeps_its_origin() -> None:
    runs, growing = DraftedRuns(), reply("a", (1, "model"), (3, "lookup"), (5, "model"))
    seen: list[list[tuple[int, int]]] = []
    for text in ("a", "ab", "abcd", "abcde"):
        growing.text = text
        runs.follow(growing, 0.0)
        seen.append(drafted(runs, "lookup"))
    assert seen == [[], [(1, 2)], [(1, 3)], [(1, 3)]]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_runs_noted_in_parts_are_the_whole(size: int) -> None:
    text = "the quick brown fox"
    runs = DraftedRuns()
    growing = reply("", (3, "model"), (9, "lookup"), (9, "ngram"), (15, "small"), (19, "model"))
    for end in range(size, len(text) + size, size):
        growing.text = text[:end]
        runs.follow(growing, 0.0)
    assert drafted(runs, "lookup") == [(3, 9)]
    assert drafted(runs, "small") == [(9, 15)]


def test_a_reply_that_continues_an_answer_comes_after_what_it_continues() -> None:
    runs = DraftedRuns()
    runs.follow(reply("ab", (1, "model"), (2, "lookup")), 0.0)
    more = reply("cd", (1, "lookup"), (2, "model"))
    more.request = replace(more.request, partial="ab")
    runs.follow(more, 1.0)
    assert drafted(runs, "lookup") == [(1, 2), (2, 3)]
