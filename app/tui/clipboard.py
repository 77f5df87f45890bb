"""Copying: the system's clipboard first, the terminal's own way else."""

import pyperclip
from textual.app import App


def copy(app: App[None], text: str, what: str) -> str:
    """Copy a text as it was said; returns what to tell the user."""
    text = text.encode(errors="replace").decode()  # no clipboard takes half a surrogate pair
    try:
        pyperclip.copy(text)
    except pyperclip.PyperclipException:
        app.copy_to_clipboard(text)
        return f"Sent {what} to the terminal's clipboard, if it has one."
    return f"Copied {what}."
