"""Faults of specchat itself: the user gets a sentence, the details go to a file."""

import contextlib
import traceback

from app.paths import Paths
from backends.base import SpecchatError


def unexpected(error: Exception, paths: Paths) -> SpecchatError:
    """An error to show for a fault nobody foresaw, its traceback kept in the data folder."""
    remedy = "Please report this."
    with contextlib.suppress(OSError):
        paths.data.mkdir(parents=True, exist_ok=True)
        report = paths.data / "last-error.txt"
        details = "".join(traceback.format_exception(error))
        report.write_text(details, encoding="utf-8", errors="backslashreplace")
        remedy = f"Please report this; the details are in {report}"
    return SpecchatError("something went wrong inside specchat", repr(error), remedy)
