"""A horizontal bar of whole cells."""


def bar(share: float, width: int) -> str:
    """A share between 0 and 1 as full cells, and the rest of the width as light ones."""
    full = round(width * min(max(share, 0.0), 1.0))
    return "█" * full + "░" * (width - full)
