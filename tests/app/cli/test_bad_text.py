"""Input that is no text, or too much of it: refused with what is wrong and where."""

import io
import sys
from pathlib import Path

import pytest

from app.cli.terminal import text_input
from backends.base import UsageError
from tests.app.conftest import Launch, Specchat

OTHER_PROGRAMS = Path(__file__).parents[2] / "fixtures" / "other_programs"
NOT_TEXT = [
    (b"a\0b", "byte 0x00 at position 1"),
    (b"\xff\xfe\0", "it is marked as UTF-16, and is not"),
    (bytes(range(1, 256)), "byte 0x01 at position 0"),
    (b"\x7fELF\x02\x01\x01\0" * 9, "byte 0x02 at position 4"),
]


@pytest.mark.parametrize(("data", "told"), NOT_TEXT)
def test_standard_input_and_a_file_that_are_not_text(
    specchat: Specchat, tmp_path: Path, data: bytes, told: str
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(data)
    asked = specchat("ask", stdin=data), specchat("ask", "Sum up:", "--file", str(path))
    for ended, source in zip(asked, ("standard input", str(path)), strict=True):
        assert (ended.returncode, ended.stdout) == (2, "")
        assert source in ended.stderr
        assert told in ended.stderr


def test_files_of_other_programs_by_option_and_by_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    file = text_input.attached(OTHER_PROGRAMS / "frogs.pdf")
    assert file.text.endswith("A newt needs 1 m².\na 1\nb 2")
    piped = io.BytesIO((OTHER_PROGRAMS / "frogs.pdf").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
    assert text_input.gather("Why?", []).startswith("Why?\n\nFrogs\nA frog needs 3 m² of water.")
    with pytest.raises(UsageError, match=r"scan\.pdf has no text: a scan"):
        text_input.attached(OTHER_PROGRAMS / "scan.pdf")


def test_a_folder_as_file(specchat: Specchat, tmp_path: Path) -> None:
    ended = specchat("ask", "Sum up:", "--file", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{tmp_path} is a folder" in ended.stderr


def test_a_missing_file(specchat: Specchat) -> None:
    ended = specchat("ask", "Sum up:", "--file", "nowhere.txt")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "cannot read nowhere.txt: No such file" in ended.stderr


def test_a_file_larger_than_any_context(specchat: Specchat, tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    ended = specchat("ask", "Sum up:", "--file", str(path))
    assert ended.returncode == 2
    assert "too large" in ended.stderr


@pytest.mark.slow
def test_a_device_without_end_is_not_read_to_its_end(launch: Launch) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))"
    process = launch("ask", "Sum up:", "--file", "/dev/zero", first=limit)
    _, err = process.communicate()
    assert process.returncode == 2, err


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--system",)])
def test_bytes_of_another_encoding_on_the_command_line(
    launch: Launch, option: tuple[str, ...]
) -> None:
    process = launch("ask", "hi"[: 2 * len(option)] or "--", *option, b"caf\xe9")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert b"at position 3" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [((), b""), (("",), b""), (("  \n",), b"\n"), (("-",), b""), ((), b"\n\n"), (("--raw",), b"")],
)
def test_an_empty_question(specchat: Specchat, arguments: tuple[str, ...], stdin: bytes) -> None:
    ended = specchat("ask", *arguments, stdin=stdin)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is no question" in ended.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_prompt_longer_than_the_context_says_by_how_much(specchat: Specchat) -> None:
    ended = specchat("ask", "count", "--ctx", "60", stdin=b"one two three " * 30)
    assert (ended.returncode, ended.stdout) == (2, "")
    sentence = ended.stderr.replace(",", "").split()
    tokens = int(sentence[sentence.index("tokens") - 1])
    excess = int(sentence[sentence.index("too") - 1])
    assert tokens > 90
    asked = ("ask", "count", "--max-tokens", "1", "--ctx")
    for n_ctx, code in ((60 + excess, 0), (60 + excess - 1, 2)):
        assert specchat(*asked, str(n_ctx), stdin=b"one two three " * 30).returncode == code
