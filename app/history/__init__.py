"""Chats on disk: every message saved as it happens."""

from app.history.errors import HistoryError
from app.history.store import Chat, History, Saved

__all__ = ["Chat", "History", "HistoryError", "Saved"]
