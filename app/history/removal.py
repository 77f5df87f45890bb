"""Removing a chat: it leaves the index of earlier chats at once, and the database after a day."""

from app.history.store import History
from app.paths import Paths
from decoding.retrieval.forgetting import forget


def remove_chat(history: History, number: int, paths: Paths) -> None:
    """Put a chat away; it can be restored for a day.

    Raises:
        HistoryError: it cannot be.
    """
    history.remove(number)
    forget(paths.retrieval, number)
