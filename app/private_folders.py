"""Removes other users' access to specchat's files, which earlier versions allowed."""

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from app.own_files import entries, own_entries
from app.paths import Paths

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_DEEPEST = 3


def tighten(paths: Paths) -> None:
    """Make specchat's files and folders readable by their owner only, where possible.

    Links, the models folder, and files of other users or programs are left alone.
    """
    if os.name == "nt":  # user profiles are private on Windows
        return
    own = paths.own_names
    for folder in dict.fromkeys((paths.config, paths.data, paths.cache)):
        if all(entry.name.startswith(own) for entry in entries(folder)):
            _restrict(folder)
    for entry in own_entries(paths):
        _tighten(entry, _DEEPEST)


def _tighten(entry: "os.DirEntry[str]", depth: int) -> None:
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False):
            _restrict(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False) and depth:
            _restrict(Path(entry.path))
            for inner in entries(Path(entry.path)):
                _tighten(inner, depth - 1)


def _restrict(path: Path) -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError):
        status = path.lstat()
        is_own = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
        if is_own and status.st_mode & _OTHERS:
            path.chmod(status.st_mode & stat.S_IRWXU)  # programs among them stay so
