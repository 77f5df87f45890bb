"""Fault guard of a drafter: one that fails is dropped, and the reply goes on without it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.base import Listener, PassStoppedError
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings
from decoding.verification.soundness import is_sound

Result = TypeVar("Result")


class FaultGuard:
    """Forwards calls to a drafter until it fails or proposes nonsense.

    dropped: why it is no longer called, empty while it is. unable: why it cannot draft at present,
    as of the last check.
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
        """The result of a call on the drafter; otherwise, if it raises, which drops it."""
        try:
            return call()
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:  # a drafter must never end a reply
            self._failed(error)
            return otherwise

    def can_draft(self, history: Sequence[int]) -> bool:
        """Whether it can draft after history."""
        if self.dropped:
            return False
        self.unable = self.guarded(lambda: self.drafter.refusal(history), "")
        return not (self.unable or self.dropped)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Let the drafter read history; yields tokens held after each chunk."""
        try:
            yield from self.drafter.read(history)
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:
            self._failed(error)

    def read_ahead(self, history: Sequence[int], most: int) -> Iterator[int]:
        """Let the drafter read a history that no reply follows yet, at most so many tokens at once.

        Yields after each piece. The last token counts as read: it is read again in any case.
        """
        try:
            if self.drafter.refusal(history):
                return
            self.drafter.begin(history, Sampler(SamplingSettings()))
            left = len(history) + 1
            while 1 < (backlog := self.drafter.backlog(history)) < left:
                left = backlog
                yield from self.drafter.read(history[: len(history) - backlog + most])
        except PassStoppedError:
            raise  # not a fault: something else is more urgent
        except Exception as error:
            self._failed(error)

    def commit(self, history: Sequence[int]) -> None:
        """Report the text after verification to the drafter."""
        try:
            self.drafter.commit(history)
        except PassStoppedError:
            raise  # of the reply
        except Exception as error:
            self._failed(error)

    def rest(self) -> None:
        """Let the drafter settle its last draft."""
        self.guarded(self.drafter.rest, None)

    def propose(
        self, history: Sequence[int], limit: int, n_vocab: int, keep_on: KeepOn | None = None
    ) -> Draft:
        """A sound draft; an unsound one drops the drafter."""
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
        """Stop calling the drafter, for this reason."""
        self.dropped = reason
        with suppress(Exception):  # a reason is known already
            self.drafter.rest()
