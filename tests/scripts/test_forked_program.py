"""A program of the campaigns begins in a terminal of the size that it is to have."""

import subprocess
import sys

import pytest

pytest.importorskip("pty", reason="POSIX terminals")

# In a process of its own: this one has threads, with which it must not be forked.
SHOW_SIZE = """
import os
from scripts.campaigns import observed as forked

program = forked.start(lambda: print(*os.get_terminal_size(0)), ["size"], {})
program.wait()
print(program.shown().split() == [str(forked.COLUMNS), str(forked.ROWS)])
program.close()
"""


def test_a_terminal_has_its_size_before_the_program_begins() -> None:
    command = [sys.executable, "-c", SHOW_SIZE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
