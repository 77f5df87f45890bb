"""The user's chats, and what else goes with those that are deleted."""

from app.history.store import History
from app.paths import Paths
from app.saved_states import SavedStates


def open_history(paths: Paths, *, repairs: bool = True) -> History:
    """Open the database; where removed chats were deleted for good, saved prompt caches go too.

    repairs: whether a damaged one is made anew; who has it open meanwhile cannot go on with it.
    A cache holds the tokens of a conversation and does not say of which chat.

    Raises:
        HistoryError: it cannot be used.
    """
    history = History.open(paths.history, repairs=repairs)
    if history.has_purged:
        SavedStates(paths.saved_states).clear()
    return history
