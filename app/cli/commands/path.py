"""`specchat path`: where files are kept."""

from enum import StrEnum
from typing import Annotated

import typer

from app.cli.output import Json, Output, write_result
from app.cli.terminal import stdout
from app.paths import Paths


class Folder(StrEnum):
    CONFIG = "config"
    DATA = "data"
    CACHE = "cache"
    MODELS = "models"


def path(
    kind: Annotated[Folder, typer.Argument(metavar="FOLDER", help=", ".join(Folder))],
    json: Json = False,
    output: Output = None,
) -> None:
    """Print a folder: config, data, cache or models."""
    folder = str(getattr(Paths.of_this_user(), kind.value))
    write_result({"path": folder}, [f"{folder}\n"], json, output, stdout.write)
