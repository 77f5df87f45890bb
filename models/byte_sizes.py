"""Numbers of bytes as text."""


def size_text(count: float) -> str:
    """Size of a file in decimal units, such as 4.9 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} bytes"


def gigabytes(size: int) -> str:
    """Size of memory in GB, or in whole MB below a tenth of a GB."""
    return f"{size / 1e9:.1f} GB" if size >= 0.95e8 else f"{size / 1e6:.0f} MB"
