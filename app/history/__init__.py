"""Chats on disk: every message saved as it happens."""

from app.history.chat import Chat, Saved
from app.history.errors import HistoryError
from app.history.store import History

__all__ = ["Chat", "History", "HistoryError", "Saved"]
