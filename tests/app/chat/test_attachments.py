"""Files and pastes of a message: what the model reads, and how they are stored."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.attachments import (
    Attachment,
    AttachmentKind,
    as_json,
    block,
    from_json,
    in_full,
    pieces,
    with_pastes,
)
from app.chat.named_files import names_in, read_file, read_files, without_begun_name
from app.cli.terminal import text_input
from app.documents.document import read_bytes
from app.structured_output import read_schema
from backends.base import UsageError
from backends.base.safe_files import read_text


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
    file.write_bytes(b"\xff\0")
    assert read_files(text) == ((), [f"{file} is not text", "no file nosuch.md"])


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


def test_outputs_of_commands_are_set_apart_and_pastes_are_not() -> None:
    output = Attachment(AttachmentKind.PASTE, "[$ ls: 2 lines]", "$ ls\n```a")
    paste = Attachment(AttachmentKind.PASTE, "[pasted 9 lines]", "p")
    text = "[$ ls: 2 lines] [pasted 9 lines] Why?"
    assert in_full(text, [output, paste]) == "\n````\n$ ls\n```a\n````\n p Why?"


@pytest.mark.parametrize("text", ["", "{", "7", "{}", "[7]", "[" * 100_000, "null"])
def test_damaged_attachments_are_left_out(text: str) -> None:
    assert from_json(text) == ()


# ruff: noqa: RUF001 - punctuation of other scripts is what is tested


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    for name in (
        "notes.md",
        "a,b.md",
        "report(1).md",
        "报告.md",
        "мой файл.md",
        "v1.2.md",
        "LICENSE",
    ):
        (folder / name).write_text(name, encoding="utf-8")
    (folder / "src").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _in_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # nothing is piped in


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("请总结@notes.md", ["notes.md"]),
        ("请总结@notes.md并翻译", ["notes.md"]),
        ("@notes.mdを要約して", ["notes.md"]),
        ("(@notes.md)", ["notes.md"]),
        ("@notes.md。", ["notes.md"]),
        ("@notes.md，再说", ["notes.md"]),
        ("「@notes.md」", ["notes.md"]),
        ("“@notes.md”", ["notes.md"]),
        ('"@notes.md"', ["notes.md"]),
        ("**@notes.md**, `@notes.md`", ["notes.md"]),
        ("look:@notes.md", ["notes.md"]),
        ("см@notes.md", ["notes.md"]),
        ("@notes.md's end", ["notes.md"]),
        ("@notes.md:12 and @notes.md...", ["notes.md"]),
        ("¿@notes.md?¡@LICENSE!", ["notes.md", "LICENSE"]),
        ("@notes.md,@v1.2.md;@a,b.md", ["notes.md", "v1.2.md", "a,b.md"]),
        ("@报告.md，@notes.md、", ["报告.md", "notes.md"]),
        ("(@report(1).md)", ["report(1).md"]),
        ('和@"мой файл.md"吧', ["мой файл.md"]),
        ("👩‍👩‍👧@notes.md👍", ["notes.md"]),
        ("@src，", ["src"]),
        ("@./notes.md\n@notes.md\t@../no", ["./notes.md", "notes.md", "../no"]),
        # not there: named, so that it is told
        ("请总结@missing.md", ["missing.md"]),
        ("(@missing.md), @missing(2).md.", ["missing.md", "missing(2).md"]),
        ("「@没有.md」", ["没有.md"]),
        ("@notes.md.bak @notes.md/x", ["notes.md.bak", "notes.md/x"]),
        ('see @"my notes.md', ['"my notes.md']),  # who can tell where it ends?
        ('@"my notes\nand more', ['"my notes']),
        # text
        ('"@" in name, split("@")', []),
        ('me@"x" @"Hello %@"', []),
        ("a@b.md me@example.org git@github.com:x/y.git", []),
        ("@anna @ home @... @Override @\"", []),
        ("x@notes.md", ["notes.md"]),  # as there is one
    ],
)  # fmt: skip
def test_a_name_ends_where_a_reader_would_end_it(text: str, names: list[str]) -> None:
    assert names_in(text) == names


@pytest.mark.slow
@given(
    st.text(st.sampled_from("（(「『【《“\"'‹¡¿:：;、。—…*`[{<|>是はу🙂\n\t "), max_size=3),
    st.sampled_from(["notes.md", "报告.md", "report(1).md", "v1.2.md", "LICENSE"]),
    st.text(st.sampled_from(")）」』】》”\"'›!！?？.。,，:：;；、—…*`]}>|🙂\n\t "), max_size=4),
)
def test_no_punctuation_hides_a_file(before: str, name: str, after: str) -> None:
    assert names_in(f"{before}@{name}{after}") == [name]
    assert names_in(f"{before}@{name}{after} и @missing.md{after}") == [name, "missing.md"]


@given(st.text(st.sampled_from('@"a.m/ d。并\n'), max_size=12))
def test_any_text_has_names_that_stand_in_it(text: str) -> None:
    assert all(name and f"{name}" in text for name in names_in(text))
    assert len(read_files(text)[1]) <= text.count("@")


def test_a_quote_that_is_not_closed_adds_no_file_and_says_so() -> None:
    assert read_files('see @"notes.md and more')[1] == []
    assert read_files('see @"my notes and more')[1] == ['@"my notes and more has no closing quote']


def test_what_was_read_before_is_named_though_it_is_gone() -> None:
    assert names_in("看@gone并且", {"gone"}) == ["gone"]
    assert read_files("看@gone并且", {"gone"}) == ((), [])


def test_a_name_that_may_still_be_typed_is_no_part_of_the_text() -> None:
    assert without_begun_name("请总结@not") == "请总结"
    assert without_begun_name("请总结@notes.md") == "请总结@notes.md"
    assert without_begun_name("(@notes.md)") == "(@notes.md)"
    assert without_begun_name("me@not") == "me@not"


_MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("data", [b"{}\n\n", _MARK + b"{}\n\n", _MARK + b"{}\r\n\r\n"])
def test_a_file_is_read_alike_however_it_comes_in(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    assert read_text(path, 100) == read_bytes(data).text == "{}\n\n"
    assert text_input.predicted(path) == read_schema(path).text == "{}\n\n"
    (file,), _ = read_files(f'@"{path}"')
    assert block(file) == block(text_input.attached(path)) == "file.json:\n```\n{}\n```"


@pytest.mark.parametrize(
    "data",
    [
        *("{}".encode(encoding) for encoding in ("utf-16-le", "utf-16-be")),
        b"\xfe\xff\0{\0", b"{}\0", b"\x80\x01caf\xe9",
    ],
)  # fmt: skip
def test_a_file_that_is_no_text_is_refused_however_it_comes_in(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    told: set[str] = set()
    for way in (lambda: read_file(str(path)), lambda: text_input.attached(path)):
        with pytest.raises(UsageError) as caught:
            way()
        told.add(caught.value.what)
    with pytest.raises(UsageError, match=r"not|only UTF-8"):
        read_schema(path)
    assert len(told) == 1
    assert read_files(f'@"{path}"')[1] == [*told]


def test_a_fence_in_a_file_does_not_end_it(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("```\ncode\n```\n\n")
    expected = "a.md:\n````\n```\ncode\n```\n````"
    assert block(read_file(str(path))) == block(text_input.attached(path)) == expected


def test_a_prompt_that_a_script_may_have_written_adds_no_file_but_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert text_input.gather("@notes.md me@example.org @missing.md", []).startswith("@notes.md me@")
    assert capfd.readouterr().err == "note: @notes.md stays text; --file adds the file\n"
