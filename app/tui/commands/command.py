"""Commands: the methods that registered actions run."""

from collections.abc import Awaitable, Callable, Mapping

from app.actions import ACTIONS

Command = Callable[..., Awaitable[None] | None]
"""Called with the argument of the slash command, empty for a key, if the action takes one."""

Perform = Callable[[str, str], Awaitable[bool]]
"""Runs an action with an argument; an error is notified, and the result is then False."""


def commands_of(*groups: object) -> Mapping[str, Command]:
    """Methods of the groups by name, which is the name of the action that each one runs."""
    return {
        action.name: getattr(group, action.name)
        for group in groups
        for action in ACTIONS
        if callable(getattr(type(group), action.name, None))
    }
