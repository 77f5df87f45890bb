"""What drafters may keep of what was said: switches that every command heeds, not the app alone."""

from app.paths import Paths
from app.settings import catalogue, file


def may_learn(paths: Paths) -> bool:
    """Whether what drafters learn from answers may be kept.

    Raises:
        UsageError: the file, or the value of the variable, cannot be used.
    """
    return _is_on("learn", paths)


def may_index(paths: Paths) -> bool:
    """Whether earlier chats may be indexed to draft from.

    Raises:
        UsageError: the file, or the value of the variable, cannot be used.
    """
    return _is_on("retrieval", paths)


def _is_on(name: str, paths: Paths) -> bool:
    """As the variable has it, else the settings file, else the default."""
    found = catalogue.from_variable(name)
    if found is None:
        found = file.read(paths.settings).get(name, catalogue.BY_NAME[name].default)
    return bool(found)
