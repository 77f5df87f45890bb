"""Prompts to train and to test on: many, of all kinds, and apart."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.history.store import History
from app.paths import Paths
from app.training import prompts as module
from app.training.prompts import (
    TrainingPrompt,
    made_prompts,
    overlapping,
    prompts_of_chats,
    prompts_of_file,
)
from backends.base import UsageError
from backends.chat.message import Message


def prompt(text: str, *, is_private: bool = False) -> TrainingPrompt:
    return TrainingPrompt("1", "write", (Message("user", text),), is_private)


def test_thousands_of_different_prompts_of_all_kinds() -> None:
    made = made_prompts("train", 6000)
    assert len(made) == len({one.text for one in made}) == len({one.id for one in made}) == 6000
    kinds = Counter(one.kind for one in made)
    assert len(kinds) >= 9
    assert min(kinds.values()) > 100
    assert made[:50] == made_prompts("train", 50)
    assert made[:50] != made_prompts("train", 50, seed=1)
    assert not any("{" in one.text and one.kind not in {"code", "dialogue"} for one in made)


def test_turns_of_a_dialogue_alternate_and_end_with_the_user() -> None:
    dialogues = [one for one in made_prompts("train", 300) if one.kind == "dialogue"]
    for one in dialogues:
        assert [message.role for message in one.messages] == ["user", "assistant", "user"]
        assert all(message.content.strip() == message.content for message in one.messages)


def test_nothing_is_tested_on_that_is_trained_on() -> None:
    tested = made_prompts("test", 90)
    assert len(tested) == 90
    assert {one.kind for one in tested} == {one.kind for one in made_prompts("train", 90)}
    assert overlapping(made_prompts("train", 6000), tested) == []
    file = module._file()
    for name, values in file["test"]["slots"].items():
        if name not in {"language", "code_language"}:
            assert not set(values) & set(file["train"]["slots"][name])
    for kind, requests in file["test"]["requests"].items():
        assert not set(requests) & set(file["train"]["requests"][kind])


WORDS = [f"word{number}" for number in range(14)]


@pytest.mark.parametrize("count", [12, 13, 14])
def test_thirteen_words_in_a_row_are_an_overlap(count: int) -> None:
    shared = " ".join(WORDS[:count])
    trained, tested = prompt(f"Please count: {shared}."), prompt(f"What: {shared.upper()}?")
    assert overlapping([trained], [tested, prompt("Other")]) == ([tested] if count >= 13 else [])


def test_a_short_prompt_overlaps_with_itself_alone() -> None:
    tested = [prompt("What is tea?"), prompt("What is bread?")]
    assert overlapping([prompt("what is TEA")], tested) == tested[:1]


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("Say hello.\n\n  Say goodbye. \nSay hello.\n")
    assert [one.text for one in prompts_of_file(path)] == ["Say hello.", "Say goodbye."]
    path.write_text("\n \n")
    with pytest.raises(UsageError, match="no prompts"):
        prompts_of_file(path)
    with pytest.raises(UsageError, match="cannot read"):
        prompts_of_file(tmp_path / "missing")


def test_chats_are_split_as_a_whole_and_later_ones_are_tested(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr("app.history.store.time.time", lambda: float(next(clock)))
    with closing(History.open(paths.history)) as history:
        for number in range(20):
            chat = history.create("model", "Be brief." if number == 0 else "")
            history.add(chat, "user", f"question {number}")
            history.add(chat, "assistant", f"answer {number}", "stop")
            files = (Attachment(AttachmentKind.PASTE, "", "text"),) if number == 1 else ()
            history.add(chat, "user", f"further {number}", attachments=files)
        trained, tested = prompts_of_chats(history)
    assert [one.messages[-1].content for one in tested] == [
        "question 18", "further 18", "question 19", "further 19",
    ]  # fmt: skip
    assert len(trained) == 2 * 18 - 1
    assert all(one.is_private for one in (*trained, *tested))
    assert [message.content for message in trained[1].messages] == [
        "Be brief.", "question 0", "answer 0", "further 0",
    ]  # fmt: skip
    assert not any(one.messages[-1].content == "further 1" for one in trained)
