"""What goes wrong with saved chats."""

from backends.base import SpecchatError


class HistoryError(SpecchatError):
    """Chats that cannot be read or written."""
