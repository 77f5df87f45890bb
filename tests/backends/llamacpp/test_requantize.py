"""The child that makes smaller copies goes when whoever started it goes, and writes anywhere."""

import subprocess
import sys
from collections.abc import Callable
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


_AS_ON_WINDOWS = """
import runpy, sys
from llama_cpp import llama_cpp as api
made = api.llama_model_quantize
def quantize(source, target, parameters):
    return made(source, target.decode("cp1252", "replace").encode(), parameters)
api.llama_model_quantize = quantize
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""There std::ofstream reads a name in the code page of the system."""


@pytest.mark.parametrize("folder", ["Jörg", "Олег/用户 😀"])
def test_a_copy_is_written_below_a_folder_of_any_letters(
    folder: str, tmp_path: Path, tiny_llama: Callable[..., Path]
) -> None:
    worker = Path(requantize.__file__).with_name("requantize_worker.py")
    target = tmp_path / folder / ".copy.partial.1"
    target.parent.mkdir(parents=True)
    source = target.with_name("source.gguf")
    source.symlink_to(tiny_llama())
    arguments = [worker, source.name, target, "q8_0", "0"]
    ended = subprocess.Popen(
        [sys.executable, "-c", _AS_ON_WINDOWS, *arguments],
        cwd=source.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert ended.stdin
    assert ended.stdout
    with ended.stdin, ended.stdout:
        said = ended.stdout.read().decode()
        assert ended.wait() == 0, said
    assert target.read_bytes()[:4] == b"GGUF"
