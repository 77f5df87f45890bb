"""Files and pastes of a message: what the model reads, and how they are stored."""

from pathlib import Path

import pytest

from app.chat.attachments import (
    Attachment,
    AttachmentKind,
    as_json,
    from_json,
    in_full,
    pieces,
    with_pastes,
    without_files,
)
from app.chat.named_files import read_files


def paste(text: str, name: str = "[pasted 6 lines]") -> Attachment:
    return Attachment(AttachmentKind.PASTE, name, text)


def test_equal_placeholders_are_taken_in_order_and_pastes_are_not_searched() -> None:
    name = "[pasted 6 lines]"
    attachments = [paste(f"1 {name}"), paste("2 \\1"), paste("other", "[pasted 60 lines]")]
    text = f"{name} and {name}, [pasted 60 lines], {name}"
    expected = f"1 {name} and 2 \\1, other, {name}"
    assert with_pastes(text, attachments) == expected
    assert with_pastes("deleted", attachments) == "deleted"
    assert with_pastes("x", [paste("y", "")]) == "x"


def test_files_are_read_when_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "with space.md"
    file.write_text("walrus")
    text = f'see @"{file}", again @"{file}" and @nosuch.md'
    (attachment,), faults = read_files(text)
    assert faults == ["no file nosuch.md"]
    assert (attachment.name, attachment.text) == (str(file), "walrus")
    block = "with space.md:\n```\nwalrus\n```"
    assert in_full(text, [attachment]) == f"{block}\n\n{text}"
    assert without_files(f"{text}\n\n{block}") == text  # as an earlier version wrote it
    file.write_bytes(b"\xff\0")
    assert read_files(text) == ((), [f"{file} is not UTF-8 text", "no file nosuch.md"])


def test_what_follows_a_file_can_change_without_the_file() -> None:
    file = Attachment(AttachmentKind.FILE, "a.md", "walrus")
    first, second = (in_full(f"@a.md {words}", [file]) for words in ("why?", "how big?"))
    assert first.removesuffix("why?") == second.removesuffix("how big?")
    assert "walrus" in first.removesuffix("@a.md why?")


def test_a_message_in_pieces_has_each_paste_where_it_stood() -> None:
    one, two = paste("1"), paste("2")
    assert pieces("a [pasted 6 lines][pasted 6 lines] b", [one, two]) == ["a ", one, two, " b"]
    assert pieces("a [pasted 6 lines]", []) == ["a [pasted 6 lines]"]
    assert pieces("", [one]) == [""]


def test_attachments_are_stored_whole() -> None:
    attachments = (paste("a \0 \u202e \ud800\n"), Attachment(AttachmentKind.FILE, "a.md", ""))
    assert from_json(as_json(attachments)) == attachments


@pytest.mark.parametrize("text", ["", "{", "7", "{}", "[7]", "[" * 100_000, "null"])
def test_damaged_attachments_are_left_out(text: str) -> None:
    assert from_json(text) == ()
