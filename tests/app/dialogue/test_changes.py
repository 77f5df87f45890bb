"""Undo and redo: nothing that was done is forgotten because a step failed."""

from collections.abc import Awaitable, Callable

import pytest

from app.dialogue.changes import Change, Changes, OwnChanges


class Light:
    """Something that is switched, and sometimes stuck."""

    def __init__(self) -> None:
        self.is_on = True
        self.is_stuck = False

    def switch(self, is_on: bool) -> None:
        if self.is_stuck:
            raise OSError("stuck")
        self.is_on = is_on

    @property
    def change(self) -> Change:
        return Change("switched", lambda: self.switch(False), lambda: self.switch(True))


async def at_the_second_try(light: Light, step: Callable[[], Awaitable[str]]) -> str:
    """What a step returns that failed at first."""
    light.is_stuck = True
    with pytest.raises(OSError, match="stuck"):
        await step()
    light.is_stuck = False
    return await step()


async def test_a_step_that_failed_can_be_tried_again() -> None:
    light, changes = Light(), Changes()
    changes.add(light.change)
    assert await at_the_second_try(light, changes.undo) == "switched"
    assert not light.is_on
    assert await at_the_second_try(light, changes.redo) == "switched"
    assert light.is_on


async def test_own_changes_are_undone_alone() -> None:
    before, here, changes = Light(), Light(), Changes()
    changes.add(before.change)
    own = OwnChanges(changes)
    assert await own.undo() == ""
    own.add(here.change)
    assert await at_the_second_try(here, own.undo) == "switched"
    assert await own.undo() == ""
    assert (before.is_on, here.is_on) == (True, False)
    assert await own.redo() == "switched"
    assert await own.redo() == ""
    assert here.is_on
