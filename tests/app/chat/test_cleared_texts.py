"""Texts that were cleared come back at the next start, for a day."""

import json
from pathlib import Path

import pytest

from app.chat.unsent import ClearedTexts


def test_the_last_texts_come_back_each_once(tmp_path: Path) -> None:
    file = tmp_path / "data" / "cleared.json"
    texts = [f"text {number}" for number in range(21)]
    for text in ("again", *texts[:5], "again", *texts[5:]):
        ClearedTexts(file).add(text)
    assert ClearedTexts(file).texts() == [*texts[2:5], "again", *texts[5:]]


def test_a_text_is_forgotten_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared = ClearedTexts(tmp_path / "cleared.json")
    now = [1_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    cleared.add("old")
    now[0] += 50_000.0
    cleared.add("new")
    now[0] += 50_000.0
    assert cleared.texts() == ["new"]


@pytest.mark.parametrize(
    "held",
    ["", "{", "[1]", '{"texts": [["x", "text"]]}', '{"texts": 1}', "null", "\x00", "[" * 99_999],
)
def test_a_damaged_file_holds_none_and_is_replaced(tmp_path: Path, held: str) -> None:
    file = tmp_path / "cleared.json"
    file.write_text(held)
    cleared = ClearedTexts(file)
    assert cleared.texts() == []
    cleared.add("text")
    assert cleared.texts() == ["text"]
    assert json.loads(file.read_text())["texts"][0][1] == "text"


def test_a_folder_that_cannot_be_written_loses_only_the_comfort(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cleared = ClearedTexts(tmp_path / "file" / "cleared.json")
    cleared.add("text")
    assert cleared.texts() == []
