"""Drafters trained for one model that were downloaded: they are files, and no models."""

from pathlib import Path, PurePosixPath

from backends.files.mlx_folder import is_mlx_folder
from models.stores.hub_snapshots import snapshots
from models.stores.installed_model import files_below
from models.stores.store_folders import Places


def downloaded_drafter(repository: str, file: str, folder: Path) -> Path | None:
    """A drafter's file in the hub cache or the models folder; None if it is on neither.

    file: its name in the repository. folder: the user's models folder.
    """
    places = Places.of_environment(folder)
    for snapshot in snapshots(places.hub_cache, repository):
        found = snapshot / PurePosixPath(file)
        if found.is_file():
            return found
    name = PurePosixPath(file).name.lower()
    return next((path for path in files_below(folder) if path.name.lower() == name), None)


def downloaded_folder(repository: str, folder: Path) -> Path | None:
    """The folder of a drafter's repository in the hub cache or the models folder.

    None if it is on neither. folder: the user's models folder, in which it has the repository's
    name, with its organization before it or as the folder above it, or without.
    """
    places = Places.of_environment(folder)
    own = PurePosixPath(repository)
    near = [folder / own, folder / repository.replace("/", "--"), folder / own.name]
    found = [*snapshots(places.hub_cache, repository), *near]
    return next((path for path in found if is_mlx_folder(path)), None)
