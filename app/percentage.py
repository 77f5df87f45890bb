"""Percentages that are 0 only if the count is 0."""


def percentage(count: int, total: int) -> str:
    """Rounded per cent of count in a positive total, without the sign."""
    if count and 200 * count <= total:
        return "<1"
    return f"{100 * count / total:.0f}"
