"""A share in per cent that is 0 only where there was nothing."""


def percentage(count: int, total: int) -> str:
    """Whole per cent of count in total, which is not 0, without the sign."""
    if count and 200 * count <= total:
        return "<1"
    return f"{100 * count / total:.0f}"
