"""Removal of a document from the indexes of all vocabularies, without opening a model."""

from contextlib import suppress
from pathlib import Path

from decoding.drafters.retrieval.segment_file import SUFFIX, SegmentError, numbers_in


def forget(root: Path, number: int) -> None:
    """Delete the segments that hold a document, and those that cannot be read.

    Other documents of these segments have to be indexed again. root: has a folder for each
    vocabulary. Temporary files of other processes are left alone; where an open file cannot be
    deleted, merging removes it.
    """
    for path in root.glob(f"*/*{SUFFIX}"):
        try:
            is_in = number in numbers_in(path)
        except SegmentError:
            is_in = True
        except OSError:
            continue
        if is_in:
            with suppress(OSError):
                path.unlink()
