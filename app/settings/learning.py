"""Whether what drafters learn from answers may be kept."""

from app.paths import Paths
from app.settings import catalogue, file

_NAME = "learn"


def may_learn(paths: Paths) -> bool:
    """As the variable has it, else the settings file; yes where nothing is set.

    Raises:
        UsageError: the file, or the value of the variable, cannot be used.
    """
    found = catalogue.from_variable(_NAME)
    if found is None:
        found = file.read(paths.settings).get(_NAME, catalogue.BY_NAME[_NAME].default)
    return bool(found)
