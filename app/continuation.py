"""How the line below an answer tells that the answer can be continued."""

SEPARATOR = " · "
"""Between the parts of a line of figures."""

CONTINUES = "Ctrl+T continues"


def without_continuation(line: str) -> str:
    """The line below an answer without the key that continues it."""
    return line.removesuffix(CONTINUES).removesuffix(SEPARATOR)
