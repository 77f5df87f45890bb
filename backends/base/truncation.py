"""How far a context may be cut back."""

from backends.base.errors import ModelError


def check_truncation(length: int, held: int) -> None:
    """Refuse to keep more tokens of a context than the held ones, or fewer than none.

    An engine does as it is told in silence, and what follows is no longer the model's.

    Raises:
        ModelError: length is not from 0 to held.
    """
    if not 0 <= length <= held:
        raise ModelError(
            f"a context cannot be cut to {length:,} tokens", f"it holds {held:,} of them"
        )
