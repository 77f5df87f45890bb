"""The process that writes an answer: while it runs, the answer is not interrupted."""

import os
from functools import cache

_START_TOLERANCE_SECONDS = 2.0
"""The system clock may be set between two looks at when a process started."""


@cache
def own_writer() -> str:
    """This process, as stored beside an answer in progress: its id and when it started."""
    import psutil

    process = os.getpid()
    return f"{process} {psutil.Process(process).create_time():.2f}"


def is_running(writer: str) -> bool:
    """Whether a process still runs; a later one with the same id is another."""
    import psutil

    try:
        number, started = writer.split()
        process = psutil.Process(int(number))
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(process.create_time() - float(started)) < _START_TOLERANCE_SECONDS
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.Error:
        return True
