"""Run a command under a memory limit, in a control group made for it (Linux).

Run: `python -m scripts.memory_group LIMIT COMMAND...`. File cache counts towards the
limit, so that a model larger than it has to stream. Making a group needs root, or a delegated
group of version 2 (`systemd-run --user --scope -p MemoryMax=900M COMMAND` is the same then).
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Never

from backends.hardware.host import memory_groups

JOIN = (sys.executable, "-m", "scripts.memory_group")
"""Command that joins the group named next, and becomes the command after that."""

_SWAP_LIMITS = ("memory.swap.max", "memory.memsw.limit_in_bytes")


class GroupRefusedError(Exception):
    """A memory limit that this process may not set; says why."""


@contextmanager
def memory_group(limit_bytes: int) -> Generator[Path]:
    """Control group with a memory limit, removed after the block; its processes must have ended.

    Raises:
        GroupRefusedError: none can be made here.
    """
    refusals: list[str] = []
    for parent in memory_groups():
        folder = parent / f"specchat-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror}")
            continue
        try:
            _limit(folder, limit_bytes)
        except OSError as error:
            folder.rmdir()
            refusals.append(f"{parent}: {error.strerror}")
            continue
        try:
            yield folder
        finally:
            folder.rmdir()
        return
    raise GroupRefusedError("; ".join(refusals) or "there are no memory groups on this system")


def _limit(folder: Path, limit_bytes: int) -> None:
    name = "memory.max" if (folder / "cgroup.controllers").exists() else "memory.limit_in_bytes"
    (folder / name).write_text(str(limit_bytes))
    for swap in _SWAP_LIMITS:
        if (folder / swap).exists():
            (folder / swap).write_text("0" if swap == "memory.swap.max" else str(limit_bytes))


def run_in(group: Path, command: Sequence[str]) -> int:
    """Run a command in a group; its exit code."""
    return subprocess.run([*JOIN, str(group), *command], check=False).returncode


def drop_from_cache(path: Path) -> None:
    """Drop a file from the system's cache, so that the next reader's group is charged for it."""
    if sys.platform == "linux":
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> int:
    """Run the command that the arguments name, in a new group or in the one named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("limit", help="megabytes, or the folder of a group")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.limit.isdecimal():
        _become(Path(arguments.limit), arguments.command)
    try:
        with memory_group(int(arguments.limit) * 1_000_000) as group:
            return run_in(group, arguments.command)
    except GroupRefusedError as error:
        sys.exit(f"no memory limit can be set here: {error}")


def _become(group: Path, command: Sequence[str]) -> Never:
    """Join a group and become the command."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    sys.exit(main())
