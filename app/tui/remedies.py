"""What helps against an error, inside the app."""

from backends.base import SpecchatError

_CONTEXT_OPTION, _CONTEXT_COMMAND = "--ctx", "/context"


def remedy_here(error: SpecchatError) -> str:
    """What helps, with the app's own commands in place of command-line options."""
    if not sets_context(error):
        return error.remedy
    remedy = error.remedy.replace(_CONTEXT_OPTION, _CONTEXT_COMMAND).rstrip(".")
    return f"{remedy}; F8 changes it too."


def sets_context(error: SpecchatError) -> bool:
    """Whether another context size helps."""
    return _CONTEXT_OPTION in error.remedy
