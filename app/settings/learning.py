"""Privacy switches for what drafters store, obeyed by every command."""

from app.paths import Paths
from app.settings import catalogue, file


def may_learn(paths: Paths) -> bool:
    """Whether drafters may store what they learn from answers.

    Raises:
        UsageError: the file, or the value of the variable, cannot be used.
    """
    return _is_on("learn", paths)


def may_index(paths: Paths) -> bool:
    """Whether earlier chats may be indexed for drafting.

    Raises:
        UsageError: the file, or the value of the variable, cannot be used.
    """
    return _is_on("retrieval", paths)


def _is_on(name: str, paths: Paths) -> bool:
    """Value of the environment variable, else of the settings file, else the default."""
    value = catalogue.from_variable(name)
    if value is None:
        value = file.read(paths.settings).get(name, catalogue.BY_NAME[name].default)
    return bool(value)
