"""Whether servers were found to answer as their models alone would, by address, model and build."""

from app.paths import Paths
from models.bounded_files import change_object, read_object

_MOST = 256


def verdict_of(paths: Paths, url: str, model: str, build: str) -> bool | None:
    """What `specchat verify` found of a server; None if it was not checked as it is now."""
    found = read_object(paths.remote_verdicts).get(_key(url, model, build))
    return found if isinstance(found, bool) else None


def keep_verdict(paths: Paths, url: str, model: str, build: str, *, equal: bool | None) -> None:
    """equal: None takes back what was found before."""
    entry = (_key(url, model, build), equal)
    change_object(paths.remote_verdicts, lambda before: dict([*before.items(), entry][-_MOST:]))


def _key(url: str, model: str, build: str) -> str:
    return f"{url} {model} {build}"
