"""A drafter that may fail: it is dropped with the reason, and the reply goes on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.base import Listener
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.soundness import is_sound

Result = TypeVar("Result")


class Guarded:
    """Asks a drafter, and no more once it has failed or proposed nonsense."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.dropped = ""
        """Why it is not asked any more; empty while it is."""
        self.unable = ""
        """Why it cannot draft at present, as it said last; empty while it can."""
        self.proposal = NO_DRAFT

    @property
    def name(self) -> str:
        """The drafter's."""
        return self.drafter.name

    def guarded(self, call: Callable[[], Result], otherwise: Result) -> Result:
        """What a call on the drafter gives; one that raises is dropped with the reason."""
        try:
            return call()
        except Exception as error:  # whatever a drafter does, the reply goes on
            self._failed(error)
            return otherwise

    def can_draft(self, history: Sequence[int]) -> bool:
        """Whether it is fit to be asked for a draft after history."""
        if self.dropped:
            return False
        self.unable = self.guarded(lambda: self.drafter.refusal(history), "")
        return not (self.unable or self.dropped)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """The drafter's, guarded in the same way."""
        try:
            yield from self.drafter.read(history)
        except Exception as error:
            self._failed(error)

    def commit(self, history: Sequence[int]) -> None:
        """The drafter's, guarded in the same way."""
        try:
            self.drafter.commit(history)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.drop(f"it failed: {str(error) or type(error).__name__}".splitlines()[0])

    def propose(
        self, history: Sequence[int], limit: int, n_vocab: int, keep_on: KeepOn | None = None
    ) -> Draft:
        """A draft that is fit to be verified; nonsense drops the drafter."""
        draft = self.guarded(lambda: self.drafter.propose(history, limit, keep_on), NO_DRAFT)
        if draft.tokens and not is_sound(draft, limit, n_vocab):
            self.drop("it proposed nonsense")
            draft = NO_DRAFT
        if draft.listener is not None:
            draft = replace(draft, listener=partial(self._hear, draft.listener))
        self.proposal = draft
        return draft

    def _hear(self, listener: Listener, likeliest: NDArray[np.int64]) -> None:
        self.guarded(lambda: listener(likeliest), None)

    def drop(self, reason: str) -> None:
        """Ask it no more."""
        self.dropped = reason
        self.proposal = NO_DRAFT
