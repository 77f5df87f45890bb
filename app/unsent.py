"""What was typed and not sent when the app was left: it stands in the prompt the next time."""

from contextlib import suppress

from app.paths import Paths
from models.whole_file import write_whole


def keep(paths: Paths, text: str) -> None:
    """Keep a text, where that is possible."""
    if text:
        with suppress(OSError):
            paths.unsent.parent.mkdir(parents=True, exist_ok=True)
            write_whole(paths.unsent, text.encode(errors="replace").decode())


def take(paths: Paths) -> str:
    """The text that was kept, once."""
    try:
        text = paths.unsent.read_text(encoding="utf-8")
        paths.unsent.unlink()
    except (OSError, ValueError):
        return ""
    return text
