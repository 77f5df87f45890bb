"""What was typed and not sent when the app was left: it stands in the prompt the next time."""

from contextlib import suppress

from app.paths import Paths
from backends.base.private_file import make_private_folder
from backends.base.regular_file import read_bounded
from models.whole_file import write_whole

_MOST_BYTES = 16 << 20


def keep(paths: Paths, text: str) -> None:
    """Keep a text, where that is possible."""
    if text:
        with suppress(OSError):
            make_private_folder(paths.data)
            write_whole(paths.unsent, text)


def take(paths: Paths) -> str:
    """The text that was kept, once."""
    try:
        data = read_bounded(paths.unsent, _MOST_BYTES)
        paths.unsent.unlink()
    except OSError:
        return ""
    return data.decode(errors="replace").replace("\0", "")
