"""Files of ours that are anything but what was written: no command ends in a fault of its own."""

import os
from pathlib import Path

import pytest

from app.chat.named_files import read_files
from app.chat.unsent import ComposerDraft
from app.loading.select import choose_model
from app.paths import Paths
from app.settings import file
from app.settings.in_effect import settings_in_effect
from tests.app.conftest import Specchat

posix = pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
HUGE = "1" + "0" * 400


def written(text: str) -> Path:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 3000, "nested"),
        (".".join(["a"] * 50_000) + " = 1", "parts"),
        ("#" * (file.MOST_BYTES + 1), "larger than"),
        ("seed = 0x" + "f" * 6000, "out of range"),
        ("temperature = 0x" + "f" * 6000, "out of range"),
        ("ctx = " + HUGE, "out of range"),
        ("presets.a.top_k = 0x" + "f" * 6000, "out of range"),
        ("theme = [" + "1, " * 50_000 + "]", "text in quotes"),
    ],
)
def test_settings_beyond_all_bounds(specchat: Specchat, text: str, why: str) -> None:
    written(text)
    ended = specchat("ask", "hi")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert why in ended.stderr
    assert len(ended.stderr) < 1000
    assert specchat("chats", "list").returncode == 0


def test_a_thousand_wrong_keys_are_not_all_compared() -> None:
    path = written("\n".join(f"k{number} = 1" for number in range(15_000)))
    settings, faults = file.examined(path)
    assert (settings, len(faults)) == ({}, 101)
    assert len(settings_in_effect(Paths.of_this_user()).notices) == 1


@posix
def test_pipes_and_devices_are_refused_at_once(specchat: Specchat, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        ended = specchat("ask", "--file", str(path), "hi")
        assert ended.returncode == 2
        assert "it is a pipe or a device" in ended.stderr
        read, (fault,) = read_files(f'@"{path}"')
        assert read == ()
        assert fault == f"{path} is a {'pipe' if path is pipe else 'device'}"
    paths = Paths.of_this_user()
    for place in (paths.settings, paths.unsent, paths.last_model):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to("/dev/zero")
    ended = specchat("ask", "hi")
    assert ended.returncode == 2
    assert "cannot read the settings" in ended.stderr
    assert "not a regular file" in ended.stderr
    assert ComposerDraft(paths).left == ""
    choose_model(None, paths)


@pytest.mark.parametrize(
    "name", ["a\0b", "x" * 20_000, "x" * 3000, "../" * 1000, "\ud800", "[" * 90, "~nobody/x"]
)
def test_any_name_of_the_last_model(name: str) -> None:
    paths = Paths.of_this_user()
    paths.data.mkdir(parents=True)
    paths.last_model.write_bytes(name.encode("utf-8", "surrogatepass"))
    assert choose_model(None, paths).name


def test_damaged_text_that_was_not_sent_is_not_lost() -> None:
    paths = Paths.of_this_user()
    paths.data.mkdir(parents=True)
    paths.unsent.write_bytes(b"half \xff of\0 it")
    draft = ComposerDraft(paths)
    assert draft.left == "half \ufffd of it"
    draft.keep("a \ud800 b")
    draft.close()
    assert ComposerDraft(paths).left == "a ? b"
