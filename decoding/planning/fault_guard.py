"""A fault guard: a drafter that fails is dropped with the reason, and the reply goes on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.base import Listener
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.verification.soundness import is_sound

Result = TypeVar("Result")


class FaultGuard:
    """Hands calls on to a drafter, until it fails or proposes nonsense.

    dropped: why it is called no more, empty while it is. unable: why it cannot draft at present, as
    of the last time it was asked.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.dropped = ""
        self.unable = ""

    @property
    def name(self) -> str:
        """The drafter's name."""
        return self.drafter.name

    def guarded(self, call: Callable[[], Result], otherwise: Result) -> Result:
        """The result of a call on the drafter, or otherwise where it raises: it is dropped then."""
        try:
            return call()
        except Exception as error:  # whatever a drafter does, the reply goes on
            self._failed(error)
            return otherwise

    def can_draft(self, history: Sequence[int]) -> bool:
        """Whether it may be asked for a draft after history."""
        if self.dropped:
            return False
        self.unable = self.guarded(lambda: self.drafter.refusal(history), "")
        return not (self.unable or self.dropped)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Let the drafter read history; yields after each chunk."""
        try:
            yield from self.drafter.read(history)
        except Exception as error:
            self._failed(error)

    def commit(self, history: Sequence[int]) -> None:
        """Let the drafter take in the text as it is after verification."""
        try:
            self.drafter.commit(history)
        except Exception as error:
            self._failed(error)

    def propose(
        self, history: Sequence[int], limit: int, n_vocab: int, keep_on: KeepOn | None = None
    ) -> Draft:
        """A draft that is fit to be verified; nonsense drops the drafter."""
        draft = self.guarded(lambda: self.drafter.propose(history, limit, keep_on), NO_DRAFT)
        if draft.tokens and not is_sound(draft, limit, n_vocab):
            self.drop("it proposed nonsense")
            return NO_DRAFT
        if draft.listener is not None:
            return replace(draft, listener=partial(self._on_verified, draft.listener))
        return draft

    def _on_verified(self, listener: Listener, likeliest: NDArray[np.int64]) -> None:
        self.guarded(lambda: listener(likeliest), None)

    def _failed(self, error: Exception) -> None:
        self.drop(f"it failed: {str(error) or type(error).__name__}".splitlines()[0])

    def drop(self, reason: str) -> None:
        """Call the drafter no more."""
        self.dropped = reason
