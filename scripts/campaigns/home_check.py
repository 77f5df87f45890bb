"""Checks with specchat's own readers that all files of a home are undamaged."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path


def half_written(home: Path) -> list[Path]:
    """Temporary files, which a program at work has and none may leave."""
    return [path for path in home.rglob(".*") if re.fullmatch(r"\..+\.\d+", path.name)]


def faults_of(home: Path) -> Iterator[str]:
    """What is wrong with the files below a home, in words."""
    for path in home.rglob("*"):
        if not path.is_file() or path.name.startswith("."):
            continue
        if path.name == "last-error.txt":
            yield f"a fault of specchat itself: {path.read_text()[-2000:]}"
            path.unlink()
        elif path.suffix == ".unusable":
            yield f"{path.name} was set aside"
            path.unlink()
        elif (opens := _reader(path)) and not opens(path):
            yield f"{path.name} is damaged"


def _reader(path: Path) -> Callable[[Path], bool] | None:
    by_folder = {"ngrams": _statistics, "self-drafts": _self_drafter}
    by_suffix = {".json": _json, ".state": _state, ".segment": _segment}
    if path.suffix in by_suffix:
        return by_suffix[path.suffix]
    return None if path.suffix == ".lock" else by_folder.get(path.parent.name)


def _json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _state(path: Path) -> bool:
    from app.prompt_cache.saved_states import read_head, read_state

    head = read_head(path)
    return head is not None and read_state(head) is not None


def _statistics(path: Path) -> bool:
    from app.learned.ngram_memory import NgramFile, UnusableFileError

    data = path.read_bytes()
    model, n_vocab = data[12:36].decode("ascii"), int.from_bytes(data[36:40], "little")
    try:
        NgramFile(path, model, n_vocab).read()
    except UnusableFileError:
        return False
    return True


def _self_drafter(path: Path) -> bool:
    return path.stem.rpartition("-")[2] == str(path.stat().st_size)


def _segment(path: Path) -> bool:
    from decoding.drafters.retrieval.segment_file import SegmentError, is_sound, read_head

    try:
        return _result(is_sound(path, read_head(path, path.read_bytes()[12:44])))
    except SegmentError:
        return False


def _result(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
