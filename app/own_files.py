"""Finds specchat's own files in its folders; all others belong to the user."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.paths import Paths


def own_entries(paths: Paths) -> Iterator["os.DirEntry[str]"]:
    """Files and folders that specchat wrote, without links and the models folder."""
    own = paths.own_names
    for folder in dict.fromkeys((paths.config, paths.data, paths.cache)):
        for entry in entries(folder):
            is_own = entry.name.startswith(own) and not entry.is_symlink()
            if is_own and Path(entry.path) != paths.models:
                yield entry


def entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    """Entries of a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries
