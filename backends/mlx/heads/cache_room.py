"""Room for the cache of a head."""

from backends.base import OutOfMemoryError
from backends.hardware.host import available_memory


def require_room(n_ctx: int, bytes_per_token: int) -> None:
    """Refuse a cache of n_ctx tokens that does not fit.

    Raises:
        OutOfMemoryError: it is larger than free memory.
    """
    needed, free = n_ctx * bytes_per_token, available_memory()
    if needed > free:
        raise OutOfMemoryError(
            "cannot open a context for the head",
            f"its cache needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
            "Use a smaller --ctx, or free some memory.",
        )
