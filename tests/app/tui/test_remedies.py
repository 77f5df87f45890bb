"""Errors name ways that exist inside the app."""

from app.tui.wording import remedy_here, sets_context
from backends.base import PromptTooLongError, UsageError


def test_the_context_is_set_inside_the_app() -> None:
    error = PromptTooLongError(33, 10)
    assert sets_context(error)
    assert "--ctx" not in remedy_here(error)
    assert "/context" in remedy_here(error)
    assert "F8" in remedy_here(error)


def test_other_remedies_stay_as_they_are() -> None:
    error = UsageError("no", "", "Free some memory.")
    assert not sets_context(error)
    assert remedy_here(error) == "Free some memory."
