"""Copying to the system clipboard, or else through the terminal."""

from typing import Any

import pyperclip
from textual.app import App

from backends.chat.whole_characters import whole_characters


def copy(app: App[Any], text: str, what: str) -> str:
    """Copy a text; returns a notification that names `what` was copied."""
    text = whole_characters(text)
    try:
        pyperclip.copy(text)
    except pyperclip.PyperclipException:
        app.copy_to_clipboard(text)
        return f"Sent {what} to the terminal's clipboard, if it has one."
    return f"Copied {what}."
