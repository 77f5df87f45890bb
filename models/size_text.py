"""Sizes of files for people."""


def size_text(count: float) -> str:
    """A number of bytes in decimal units, such as 4.9 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} bytes"
