"""Some damaged files of every kind of ours: read, rebuilt or refused by name."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from backends.base import SpecchatError
from scripts.campaigns.fuzz_files import KINDS
from scripts.fuzzing.campaign import damaged_file

_OWN = {
    "settings": 50, "catalogue": 25, "json": 30, "ngram": 25, "saved-state": 50, "index": 50,
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
