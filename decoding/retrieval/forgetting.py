"""Removes a document from the indexes of all vocabularies, without opening a model."""

from contextlib import suppress
from pathlib import Path

from decoding.retrieval.segment_file import SUFFIX, SegmentError, numbers_in


def forget(root: Path, number: int) -> None:
    """Delete the segments that hold a document, and those that do not say what they hold.

    Other documents go with it, and are indexed again by whoever keeps the index. root: holds a
    folder for each vocabulary. What another program half wrote it has to clean up itself; on
    systems where an open file cannot be deleted, one goes when it is merged.
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
