"""What was typed and not sent, or cleared, comes back at the next start."""

import json
from pathlib import Path

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.unsent import ClearedTexts, ComposerDraft
from app.paths import Paths

PASTE = Attachment(AttachmentKind.PASTE, "[pasted 6 lines]", "1\n2\n3 \0 \u202e\n4\n5\n6")


def test_pastes_come_back_with_their_text() -> None:
    paths = Paths.of_this_user()
    draft = ComposerDraft(paths)
    draft.keep("see [pasted 6 lines]", [PASTE])
    draft.close()
    again = ComposerDraft(paths)
    assert (again.left, again.attachments) == ("see [pasted 6 lines]", (PASTE,))
    again.close()
    third = ComposerDraft(paths)
    assert (third.left, third.attachments) == ("see [pasted 6 lines]", (PASTE,))


def test_drafts_of_two_apps_are_joined_with_their_pastes() -> None:
    paths = Paths.of_this_user()
    first, second = ComposerDraft(paths), ComposerDraft(paths)
    first.keep("one [pasted 6 lines]", [PASTE])
    second.keep("two")
    for draft in (first, second):
        draft.close()
    again = ComposerDraft(paths)
    assert again.left == "one [pasted 6 lines]\n\ntwo"
    assert again.attachments == (PASTE,)


@pytest.mark.parametrize(
    ("held", "left"),
    [("a \0 b", "a  b"), ("a\0[]", "a[]"), ("a\0{", "a{"), ("a\0[1]", "a[1]"), ("\0", "")],
)
def test_a_damaged_file_is_text(held: str, left: str) -> None:
    paths = Paths.of_this_user()
    paths.unsent.parent.mkdir(parents=True, exist_ok=True)
    paths.unsent.write_text(held)
    draft = ComposerDraft(paths)
    assert (draft.left, draft.attachments) == (left, ())


def test_a_file_that_is_too_large_to_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.unsent._MOST_BYTES", 20)
    paths = Paths.of_this_user()
    first = ComposerDraft(paths)
    first.keep("far more than twenty bytes")
    first.close()
    second = ComposerDraft(paths)
    assert second.left == ""
    second.keep("other words")
    second.close()
    texts = [file.read_text() for file in sorted(paths.data.glob("unsent*.txt"))]
    assert sorted(texts) == ["far more than twenty bytes", "other words"]


def test_a_paste_takes_no_more_room_than_its_text() -> None:
    paths = Paths.of_this_user()
    paste = Attachment(AttachmentKind.PASTE, "[pasted 9 lines]", "汉" * 1000)
    draft = ComposerDraft(paths)
    draft.keep("see [pasted 9 lines]", [paste])
    draft.close()
    assert paths.unsent.stat().st_size < 3200
    assert ComposerDraft(paths).attachments == (paste,)


def test_every_window_keeps_its_text_however_many_there_are() -> None:
    paths = Paths.of_this_user()
    windows = [ComposerDraft(paths) for _ in range(40)]
    for number, window in enumerate(windows):
        window.keep(f"text {number}")
    for window in windows[::2]:
        window.close()
    again = ComposerDraft(paths)
    assert again.left.split("\n\n") == [f"text {number}" for number in range(0, 40, 2)]
    assert ComposerDraft(paths).left == ""
    for window in windows[1::2]:
        window.close()
    last = ComposerDraft(paths)
    assert last.left.split("\n\n") == [f"text {number}" for number in range(1, 40, 2)]


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


def test_a_folder_that_cannot_be_entered_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("app.chat.unsent.FileLock.acquire", refused)
    monkeypatch.setattr("app.chat.unsent.read_bounded", refused)
    assert ComposerDraft(Paths.of_this_user()).left == ""


def test_a_folder_that_cannot_be_written_loses_only_the_comfort(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cleared = ClearedTexts(tmp_path / "file" / "cleared.json")
    cleared.add("text")
    assert cleared.texts() == []
