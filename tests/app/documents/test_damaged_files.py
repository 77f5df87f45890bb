"""Damaged files: text or a named error, within bounds of time and memory."""

import random
import time
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

from app.documents import document
from app.documents.document import MOST_MEMORY, SECONDS, read_bytes
from backends.base.safe_files import NotTextError

FILES = sorted(
    path
    for path in (Path(__file__).parents[2] / "fixtures" / "other_programs").iterdir()
    if path.suffix != ".md"
)
NAMED = (
    "is damaged", "has no text", "is encrypted", "is not text", "is an archive", "has over",
    "takes too much memory", "cannot be read: it did not answer", "cannot be read: it took over",
    "cannot be read: its process ended",
)  # fmt: skip


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A file with a few faults; of an archive often within one of its parts, which unpacks."""
    if data.startswith(b"PK") and draw.random() < 0.7:
        with zipfile.ZipFile(BytesIO(data)) as old:
            parts = {name: old.read(name) for name in old.namelist()}
        victim = draw.choice([name for name, part in parts.items() if part])
        parts[victim] = _faulty(parts[victim], draw)
        with zipfile.ZipFile(made := BytesIO(), "w") as new:
            for name, part in parts.items():
                new.writestr(name, part)
        return made.getvalue()
    return _faulty(data, draw)


def _faulty(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(changed) + 1)
        length = int(2 ** draw.uniform(0, 10))
        match draw.randrange(5):
            case 0:
                changed[at : at + 1] = draw.randbytes(1)
            case 1:
                changed[at : at + length] = b""
            case 2:
                changed[at:at] = changed[at : at + length] * draw.randint(1, 20)
            case 3:
                changed[at : at + length] = draw.randbytes(length)
            case _:
                changed[at : at + 8] = draw.choice(
                    [b"9999999999", b"<a>", b"</w:p>", b"-1", b"\xff" * 8]
                )
    return bytes(changed)


@pytest.mark.parametrize(
    "count", [8, pytest.param(1000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_damaged_file(path: Path, count: int) -> None:
    draw, whole, told = random.Random(f"{path.name} {count}"), path.read_bytes(), Counter[str]()
    for _ in range(count):
        data, began = damaged(whole, draw), time.monotonic()
        try:
            read_bytes(data, path.name)
            told["text"] += 1
        except NotTextError as error:
            told[next((name for name in NAMED if error.fault.startswith(name)), error.fault)] += 1
        assert time.monotonic() - began < SECONDS + document._START_SECONDS
    process = document._CHILD._process
    if process is not None and Path("/proc/self/status").exists():
        status = Path(f"/proc/{process._process.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) * 1024 < MOST_MEMORY
    print(path.name, dict(told))
    assert told.keys() <= {"text", *NAMED}
