"""Reads the JSON files beside a model's weights, trusting nothing in them."""

import json
from pathlib import Path
from typing import Any, cast

from backends.base import ModelError

_MAX_BYTES = 16 << 20
"""The longest are indexes of thousands of experts and lists of added tokens."""

REMEDY = "Download or convert it again."


def read_settings(file: Path) -> dict[str, Any]:
    """The object a file holds, {} where there is no file.

    Raises:
        ModelError: it cannot be read, or holds something else.
    """
    size = 0
    try:
        size = file.stat().st_size
        found = json.loads(file.read_bytes()) if size <= _MAX_BYTES else None
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"cannot read {file}", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        why = str(error) if size else "it is empty: a download or a conversion was interrupted"
        raise ModelError(f"{file} is damaged", why, REMEDY) from error
    if not isinstance(found, dict):
        raise ModelError(f"{file} is damaged", "it holds no settings", REMEDY)
    return cast(dict[str, Any], found)
