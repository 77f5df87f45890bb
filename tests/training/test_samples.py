"""Samples on disk: whole or not at all, bounded, private, and of one target."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from backends.base import ModelError
from training.samples import LIKELY, Sample, SampleCache


def sample(number: int, length: int = 12, first: int = 5) -> Sample:
    random = np.random.default_rng(number)
    shape = (length, LIKELY)
    return Sample(
        f"prompt {number}", 0.7,
        random.integers(0, 100, length, np.int32), first,
        random.normal(0, 1e5, (length, 3, 8)).astype(np.float32),
        random.integers(0, 100, shape, np.int32), -random.random(shape).astype(np.float32),
        is_private=number % 2 == 1,
    )  # fmt: skip


def check_equal(found: Sample, wanted: Sample) -> None:
    assert (found.id, found.temperature) == (wanted.id, wanted.temperature)
    assert (found.first, found.is_private) == (wanted.first, wanted.is_private)
    shown = slice(wanted.first - 1, None)
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_array_equal(found.likely[shown], wanted.likely[shown])
    np.testing.assert_allclose(found.logs[shown], wanted.logs[shown], atol=1e-3)
    np.testing.assert_allclose(found.states, wanted.states, rtol=2**-8)
    assert found.states.dtype == np.float32


def test_samples_come_back_after_opening_again(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path / "cache")
    for number in range(3):
        assert cache.add(sample(number, length=12 + number))
    cache = SampleCache(tmp_path / "cache")
    assert len(cache) == 3
    assert cache.tokens == 7 + 8 + 9
    assert cache.done == {f"prompt {number}" for number in range(3)}
    for number in range(3):
        check_equal(cache.sample(number), sample(number, length=12 + number))
    assert cache.n_bytes == sum(path.stat().st_size for path in cache.folder.iterdir())


def test_states_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path)
    given = sample(0)
    given.states[0, 0, :4] = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-12, -3e38]
    cache.add(given)
    found = cache.sample(0).states[0, 0, :4]
    np.testing.assert_allclose(found[:3], [1.0, 1 + 2**-6, 1 + 2**-7], rtol=0)
    assert found[3] == pytest.approx(-3e38, rel=2**-8)


def test_a_process_killed_while_it_adds_leaves_whole_samples(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.training.test_samples import sample, SampleCache\n"
        "cache = SampleCache(Path(sys.argv[1]))\n"
        "for number in range(len(cache), 10**6):\n"
        "    cache.add(sample(number)); print(number, flush=True)\n"
    )
    for _ in range(3):
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=root
        ) as process:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(7)]
            process.kill()
        cache = SampleCache(tmp_path)
        assert len(cache) > told[-1]
        for number in range(len(cache)):
            check_equal(cache.sample(number), sample(number))


def test_disk_is_bounded(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path, most_bytes=20_000)
    added = [cache.add(sample(number)) for number in range(4)]
    assert added == [True, True, True, False]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.npz")) <= cache.most_bytes
    assert len(SampleCache(tmp_path)) == 3


def test_states_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    given = sample(0)
    given.states[3, 1, 2] = np.nan
    cache = SampleCache(tmp_path)
    with pytest.raises(ModelError, match="finite"):
        cache.add(given)
    assert len(SampleCache(tmp_path)) == 0


@pytest.mark.skipif(os.name == "nt", reason="profiles are private on Windows")
def test_only_the_owner_reads_samples(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path / "cache")
    cache.add(sample(0))
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.folder.iterdir()} == {0o600}


def test_a_damaged_sample_is_told(tmp_path: Path) -> None:
    cache = SampleCache(tmp_path)
    cache.add(sample(0))
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be read"):
        cache.sample(0)
