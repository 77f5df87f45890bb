"""`specchat path`: where things are kept, without opening the app."""

from enum import StrEnum

from app.cli.terminal import stdout
from app.paths import Paths


class Kind(StrEnum):
    """What is looked for."""

    CONFIG = "config"
    DATA = "data"
    CACHE = "cache"
    MODELS = "models"


def path(kind: Kind) -> None:
    """Print a folder: config, data, cache or models."""
    stdout.write(f"{getattr(Paths.of_this_user(), kind.value)}\n")
