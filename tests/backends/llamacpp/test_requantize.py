"""The child that makes smaller copies goes when whoever started it goes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.llamacpp import requantize


def test_the_child_stops_and_cleans_up_when_its_parent_is_gone(demo_file: Path, tmp_path: Path):
    worker = Path(requantize.__file__).with_name("requantize_worker.py")
    target = tmp_path / "copy.gguf"
    child = subprocess.Popen(
        [sys.executable, "-I", str(worker), str(demo_file), str(target), "q2_k", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline().startswith(b"progress")
    child.stdin.close()  # as the system does when the parent ends in any way
    child.stdout.read()
    assert child.wait() != 0
    assert not target.exists()
    child.stdout.close()
