"""Unsent text and its folded pastes come back at the next start."""

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.unsent import ComposerDraft
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
