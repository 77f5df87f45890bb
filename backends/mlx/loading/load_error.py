"""Errors for exceptions that mlx-lm and MLX raise while loading a model."""

import re
from pathlib import Path

from backends.base import ModelError, OutOfMemoryError
from backends.files.mlx_folder import REMEDY

_MOST_CHARACTERS = 200
_OUT_OF_MEMORY = re.compile(r"alloc|out of memory|insufficient memory", re.IGNORECASE)
_UNEXPECTED = re.compile(r"Received (\d+) parameters not in model:\s*([^\s,]+?),?\.?(?:\s|$)")
_MISSING = re.compile(r"Missing (\d+) parameters:\s*([^\s,]+?),?\.?(?:\s|$)")
_SHAPE = re.compile(r"Expected shape (\(.*?\)) but received shape (\(.*?\)) for parameter (\S+)")
_ARGUMENTS = re.compile(r"missing \d+ required positional arguments?: (.+)", re.DOTALL)


def load_error(path: Path, error: Exception) -> ModelError:
    """Error to show for an exception while a model was loaded or first run."""
    if isinstance(error, ModelError):
        return error
    refusal = _wrapped(path, error)
    refusal.__cause__ = error
    return refusal


def _wrapped(path: Path, error: Exception) -> ModelError:
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    ):
        return OutOfMemoryError(
            f"there is no memory for {path.name}",
            _shortened(str(error)),
            "Choose a smaller model or quantization, or free some memory.",
        )
    return ModelError(f"cannot load {path}", _reason(error), REMEDY)


def _reason(error: Exception) -> str:
    text = str(error)
    if about_weights := _about_weights(text):
        return about_weights
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, KeyError):
        return f"its files lack {_shortened(text)}"
    if isinstance(error, TypeError) and (match := _ARGUMENTS.search(text)):
        return f"config.json lacks {_shortened(match[1])}"
    return f"its files are inconsistent ({_shortened(text) or type(error).__name__})"


def _about_weights(text: str) -> str:
    """Reason for mismatched names or shapes, with one tensor as an example; "" for other texts."""
    if match := _MISSING.search(text):
        return f"its weights lack {_named(match)}, which config.json asks for"
    if match := _UNEXPECTED.search(text):
        return f"its weights have {_named(match)}, which config.json does not ask for"
    if match := _SHAPE.search(text):
        return f"{match[3].rstrip('.')} is {match[2]} in its weights, and {match[1]} by config.json"
    return ""


def _named(match: re.Match[str]) -> str:
    others = int(match[1]) - 1
    return f"{match[2][:80]} and {others:,} more" if others else match[2][:80]


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"
