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


def short_size(count: float) -> str:
    """Size for a column of a list: 98 MB, 0.5 GB, 2.5 GB, 11 GB."""
    if count < 0.995e8:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 9.95e9 else f"{count / 1e9:.0f} GB"
