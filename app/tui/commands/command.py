"""The type of commands, which registered actions run."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

Command = Callable[[str], Awaitable[None] | None]
"""Called with the argument of the slash command, empty for a key."""

Commands = Mapping[str, Command]
"""Commands by the name of their action."""

Perform = Callable[[str, str], Awaitable[bool]]
"""Runs an action with an argument; an error is notified, and the result is then False."""

Result = TypeVar("Result")


def no_argument(run: Callable[[], Result]) -> Callable[[str], Result]:
    """A command that ignores its argument."""
    return lambda _: run()
