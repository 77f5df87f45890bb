"""Chats on disk: every message saved as it happens."""

from app.history.records import Chat, HistoryError, Saved
from app.history.store import History

__all__ = ["Chat", "History", "HistoryError", "Saved"]
