"""Loading a model without reading all of its file."""

import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends.llamacpp import library
from backends.llamacpp.loading import mapping_only


def mapped_share(path: Path) -> float:
    """Share of a mapped file that this process has in its memory."""
    smaps = Path("/proc/self/smaps").read_text()
    of_file = [block for block in re.split(r"\n(?=[0-9a-f]+-)", smaps) if str(path) in block]
    sizes = [re.search(r"^Rss:\s+(\d+) kB", block, re.MULTILINE) for block in of_file]
    return sum(1024 * int(found[1]) for found in sizes if found) / path.stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reads a file while mapping it")
@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_file_is_only_mapped(demo_file: Path, tmp_path: Path, is_lazy: bool):
    library.start()
    parameters = api.llama_model_default_params()
    parameters.load_mode, parameters.use_extra_bufts = 1, False
    path = tmp_path / "copy.gguf"
    path.write_bytes(demo_file.read_bytes())
    with mapping_only() if is_lazy else nullcontext():
        pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    assert pointer is not None
    share = mapped_share(path)
    api.llama_model_free(pointer)
    assert share < 0.1 if is_lazy else share > 0.9
