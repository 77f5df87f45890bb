"""A program of the campaigns begins in a terminal of the size that it is to have."""

import os
import sys

import pytest

pytest.importorskip("fcntl", reason="POSIX terminals")

from scripts.campaigns import forked_program


def show_size() -> None:
    size = os.get_terminal_size(0)
    print(f"{size.columns} by {size.lines}")


def test_a_terminal_has_its_size_before_the_program_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    program = forked_program.start(show_size, ["size"], {})
    program.wait()
    program.close()
    assert f"{forked_program.COLUMNS} by {forked_program.ROWS}" in program.shown()
