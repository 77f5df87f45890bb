"""Text files that are never left half written."""

from pathlib import Path

from backends.base.private_file import write_whole_bytes


def write_whole(path: Path, text: str, *, is_private: bool = True) -> None:
    """Replace a file by one with this text, or leave it as it was.

    is_private: whether it is readable by its owner alone; else the user's umask decides.

    Raises:
        OSError: it cannot be written.
    """
    write_whole_bytes(path, text.encode(errors="replace"), is_private=is_private)
