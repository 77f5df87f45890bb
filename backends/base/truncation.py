"""Bounds of truncating a context."""

from backends.base.errors import ModelError


def check_truncation(length: int, held: int) -> None:
    """Refuse a length outside 0 to held, the tokens of a context.

    Engines accept any length silently, and later output is then wrong.

    Raises:
        ModelError: length is not from 0 to held.
    """
    if not 0 <= length <= held:
        raise ModelError(
            f"a context cannot be cut to {length:,} tokens", f"it holds {held:,} of them"
        )
