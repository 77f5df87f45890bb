"""Where a model's file is mapped."""

import mmap
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest

from backends.files.gguf_header import briefly_mapped
from backends.streaming.mapped_file import CacheDropper, MappedFile

if sys.platform != "linux":
    pytest.skip("only Linux tells where files are mapped", allow_module_level=True)


def mapped_addresses(dropper: CacheDropper) -> list[int]:
    return [one.address for one in dropper._mapped]


def test_a_mapping_for_a_moment_is_waited_for_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    found: list[CacheDropper] = []
    looked = Event()

    def look(file: MappedFile) -> None:
        found.append(CacheDropper(file))
        looked.set()

    with ExitStack() as closing:
        mapped = MappedFile(path, closing)
        with path.open("rb") as file, briefly_mapped(file):
            thread = Thread(target=look, args=[mapped])
            thread.start()
            assert not looked.wait(0.2)
        thread.join()
        assert mapped_addresses(found[0]) == [mapped.address]


def test_a_private_mapping_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    with ExitStack() as closing, path.open("rb") as file:
        mapped = MappedFile(path, closing)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as own:
            own[0] = 7
            assert mapped_addresses(CacheDropper(mapped)) == [mapped.address]
