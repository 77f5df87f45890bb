"""Copying: the system's clipboard first, the terminal's own way else."""

import pyperclip
from textual.app import App

from backends.base.whole_characters import whole_characters


def copy(app: App[None], text: str, what: str) -> str:
    """Copy a text as it was said; returns what to tell the user."""
    text = whole_characters(text)
    try:
        pyperclip.copy(text)
    except pyperclip.PyperclipException:
        app.copy_to_clipboard(text)
        return f"Sent {what} to the terminal's clipboard, if it has one."
    return f"Copied {what}."
