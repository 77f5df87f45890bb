"""Short campaigns of damaged files, each by a seed of its own."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from backends.base import SpecchatError
from scripts.campaigns.fuzz_files import KINDS
from scripts.fuzzing import campaign
from scripts.fuzzing.campaign import READ, REFUSED, Summary, damaged_file, readings
from scripts.fuzzing.damage import MUTATIONS, Mutation, damaged
from scripts.fuzzing.model_files import HeadFolders
from tests.fixtures.faulty_kind import FaultyKind

_FAULTS = {"raise": "exception", "exit": "crash", "hang": "hang"}


@pytest.mark.slow
def test_a_campaign_notices_every_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "_PATIENCE_SECONDS", 8.0)
    summary, kind = Summary(), FaultyKind()
    files = {number: damaged_file(kind, [b""], 53, number).decode() for number in range(12)}
    assert set(files.values()) == {"fine", "refused", "raise", "exit", "memory", "hang"}
    for found in readings(FaultyKind, 12, 53):
        summary.add(found)
        wanted = files[found.number]
        outcome = REFUSED if wanted == "refused" else _FAULTS.get(wanted, READ)
        assert found.reading.outcome == outcome
        watched = wanted != "memory" or sys.platform == "linux"
        assert bool(found.reading.fault) == (wanted not in ("fine", "refused") and watched)
    assert summary.outcomes.total() == 12


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_damage_is_some_and_bears_any_length(mutation: Mutation):
    for size in (0, 1, 7, 300, 10_000):
        good = bytes(Random(size).randbytes(size))
        copies = [bytearray(good) for _ in range(20)]
        for seed, copy in enumerate(copies):
            mutation(copy, Random(seed))
        assert size < 16 or any(copy != good for copy in copies)


def test_the_same_seed_damages_in_the_same_way():
    good = bytes(range(256)) * 8
    one, same, other = (damaged(good, Random(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


SEED = 61


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.nightly)])
def test_a_damaged_head_is_refused_by_name_or_sound(count: int) -> None:
    summary = Summary()
    for found in readings(HeadFolders, count, SEED, workers=1):
        summary.add(found)
    assert not summary.faults
    assert min(summary.outcomes[READ], summary.outcomes[REFUSED]) > count // 20


_OWN = {
    "settings": 50, "json": 30, "ngram": 25, "saved-state": 50, "index": 50,
    "chat-database": 30, "template": 4,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", _OWN)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    kind = KINDS[name]()
    samples = kind.samples(made)
    for number in range(_OWN[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / kind.file_name
        path.write_bytes(damaged_file(kind, samples, 1, number))
        with suppress(SpecchatError):
            kind.read(path)


@pytest.mark.parametrize("name", _OWN)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    kind = KINDS[name]()
    for number, sample in enumerate(kind.samples(made)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / kind.file_name).write_bytes(sample)
        assert kind.read(folder / kind.file_name) == "read"


@pytest.mark.slow
@pytest.mark.parametrize("odd", [b"1" + b"0" * 400, b"NaN", b"[[1]]"])
def test_odd_values_in_every_place_of_json(tmp_path: Path, odd: bytes) -> None:
    made = tmp_path / "made"
    made.mkdir()
    kind = KINDS["json"]()
    for sample in kind.samples(made):
        for number, place in enumerate(re.finditer(rb"(?<=[:\[ ])\d[\d.]*|true|null", sample)):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            path = folder / kind.file_name
            path.write_bytes(sample[: place.start()] + odd + sample[place.end() :])
            assert kind.read(path) == "read"
