"""Arrays and some facts in one file, which is written whole or not at all."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from backends.base import DiskFullError
from backends.base.safe_files import open_regular, write_whole

Stored = dict[str, NDArray[Any]]
_FACTS = "facts"


def packed(facts: Mapping[str, Any], arrays: Stored) -> bytes:
    """facts: as JSON has them."""
    made = io.BytesIO()
    told = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    np.savez(made, allow_pickle=False, **{_FACTS: told}, **arrays)
    return made.getvalue()


def write(path: Path, content: bytes | str) -> None:
    """Raises DiskFullError."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise DiskFullError(f"{path.name} cannot be kept", str(error)) from error


def read(path: Path, *names: str) -> tuple[dict[str, Any], Stored]:
    """Facts, and the arrays of these names, or all.

    Raises:
        OSError, ValueError: it is not there, or damaged.
    """
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(bytes(stored[_FACTS]))
            wanted = names or (name for name in stored.files if name != _FACTS)
            return facts, {name: stored[name] for name in wanted}
    except (BadZipFile, EOFError, KeyError) as error:
        raise ValueError(str(error)) from error
