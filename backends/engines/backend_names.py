"""Names of the backends, as users and ModelInfo.backend give them."""

from backends.base import UsageError

BACKENDS = AUTO, LLAMACPP, MLX = "auto", "llamacpp", "mlx"


def check_backend(name: str) -> None:
    """Refuse an unknown backend.

    Raises:
        UsageError: there is no backend of that name.
    """
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}", f"known: {', '.join(BACKENDS)}")
