"""Reports internal errors: a sentence for the user, the traceback in a file."""

import contextlib
import traceback

from app.paths import Paths
from backends.base import SpecchatError
from backends.base.atomic_file import write_whole
from backends.base.private_file import make_private_folder


def crash_report(error: Exception, paths: Paths) -> SpecchatError:
    """Convert an internal error into one to show, and keep its traceback in the data folder."""
    remedy = "Please report this."
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_error, "".join(traceback.format_exception(error)))
        remedy = f"Please report this; the details are in {paths.last_error}"
    return SpecchatError("an internal error", repr(error), remedy)
