"""Memory: nothing is left behind by loading again and again, and no row is kept per token."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp

_PEAK = """
import sys
from pathlib import Path
from backends.hardware.host import peak_memory_bytes
from backends import llamacpp
from decoding.generation import Limits, generate
from decoding.sampling.distribution import SamplingSettings

model = llamacpp.load(Path(sys.argv[1]), threads=1)
context = model.open(int(sys.argv[2]))
prompt = [1000 + index % 5000 for index in range(int(sys.argv[3]))]
for _ in generate(context, prompt, SamplingSettings(temperature=0.0), Limits(8, frozenset())):
    pass
print(peak_memory_bytes(), context.kv_bytes_per_token)
"""


def _peak(demo_file: Path, n_ctx: int, n_prompt: int) -> tuple[int, int]:
    command = [sys.executable, "-c", _PEAK, str(demo_file), str(n_ctx), str(n_prompt)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    peak, kv_bytes = map(int, done.stdout.split())
    return peak, kv_bytes


@pytest.mark.slow
def test_fifty_rounds_of_loading_and_unloading_do_not_grow(demo_file: Path):
    process = psutil.Process()
    after: list[int] = []
    for _ in range(50):
        model = llamacpp.load(demo_file)
        context = model.open(256)
        context.forward([1, 2, 3], 1)
        model.close()
        after.append(process.memory_info().rss)
    # The least of each: what is freed late, as by the allocator, comes and goes between rounds.
    assert min(after[-5:]) - min(after[4:9]) < 8_000_000


@pytest.mark.slow
def test_memory_grows_with_the_cache_and_with_no_prompt(demo_file: Path):
    small, kv_bytes = _peak(demo_file, 1024, 100)
    large, _ = _peak(demo_file, 5120, 900)
    # 4,096 more tokens of context, of which 800 are read; a row of logits for each of those alone
    # would be 157 MB.
    assert large - small < 1.2 * 4096 * kv_bytes + 20_000_000
    assert large - demo_file.stat().st_size < 600_000_000
