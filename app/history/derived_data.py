"""Opening and removing chats together with the data derived from them.

What knows that data is imported when some is to be removed, which is seldom.
"""

from app.history.store import History
from app.paths import Paths


def open_history(paths: Paths, *, repairs: bool = True) -> History:
    """Open the database; if it deleted removed chats for good, saved prompt caches go too.

    repairs: whether a damaged database is rebuilt; another program that has it open then loses it.
    A cache holds the tokens of a conversation without naming the chat.

    Raises:
        HistoryError: the database cannot be used.
    """
    history = History.open(paths.history, repairs=repairs)
    if history.has_purged:
        from app.prompt_cache.saved_states import SavedStates

        SavedStates(paths.saved_states).clear()
    return history


def remove_chat(history: History, number: int, paths: Paths) -> None:
    """Remove a chat: from the retrieval index at once, from the database after a day.

    Raises:
        HistoryError: it cannot be removed.
    """
    from decoding.drafters.retrieval.forgetting import forget

    history.remove(number)
    forget(paths.retrieval, number)
