"""The running state of a context: how far it can go back, and going back."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

import operator
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache

from backends.mlx.caches.held_states import HeldStates
from backends.mlx.caches.layer_caches import leaves
from backends.mlx.recurrent.checkpoints import Checkpoints
from backends.mlx.recurrent.recorded_mixers import CallLog, MixerCall

_Arrays = Sequence[mx.array | None]


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass that can be taken back."""

    start: int
    """Tokens that the caches had read before."""
    before: HeldStates
    calls: Sequence[MixerCall] | None
    """Those that give every running state again; None if they cannot."""


class RunningState:
    """Running states of a context's caches, with those before the last pass and at checkpoints.

    Going back into the last pass takes the states before it, and reruns the scans over what is kept
    of it. Where an architecture's layers cannot be rerun, what is kept is left to be read again.

    most_tokens: of a pass that is recorded. most_bytes: of all checkpoints.
    """

    def __init__(
        self, caches: Sequence[Any], log: CallLog, most_tokens: int, most_bytes: int
    ) -> None:
        self._caches = caches
        self._log = log
        self._most_tokens = most_tokens
        self._checkpoints = Checkpoints(most_bytes)
        self._last: _Pass | None = None
        self.read = 0
        """Tokens that the caches have read."""

    @contextmanager
    def passing(self, count: int) -> Generator[None]:
        """Record a pass over count tokens; the one before can be taken back no more."""
        self._last = None
        if count > self._most_tokens:
            yield
        else:
            before = HeldStates(self._caches)
            found = [(cache, tuple(cache.cache)) for cache in before.caches]
            self._log.calls = calls = list[MixerCall]()
            try:
                yield
            finally:
                self._log.calls = None
            self._last = _Pass(self.read, before, calls if _are_all(calls, found) else None)
        self.read += count

    def reachable(self, length: int) -> int:
        """The longest length, up to this one, to which the context can go back."""
        if self._last is not None and self._last.start <= length:
            return length
        return self._checkpoints.latest(length)

    def go_back(self, length: int) -> None:
        """Go back to a reachable length; the caches have then read so many tokens or fewer."""
        if self._last is not None and self._last.start <= length:
            if length < self.read:
                self._go_back_into(self._last, length)
        else:
            self._checkpoints.put_back(length)
            self._last = None
            self._keep(length)
        self._checkpoints.forget_after(length)

    def _go_back_into(self, last: _Pass, length: int) -> None:
        last.before.put_back()
        if length == last.start or last.calls is None:
            self._keep(last.start)
            return
        for call in last.calls:
            call.rerun(length - last.start)
        self._keep(length)
        mx.async_eval([cache.state for cache in last.before.caches])

    def _keep(self, length: int) -> None:
        """Keep the keys and values of the first length tokens."""
        for cache in leaves(self._caches):
            if isinstance(cache, KVCache):
                cache.offset = length
        self.read = length

    def checkpoint(self, *, is_brief: bool) -> None:
        """Hold the present states, which have read all tokens of the context."""
        if self.read:
            states = HeldStates(self._caches)
            states.compute()
            self._checkpoints.hold(self.read, states, is_brief=is_brief)


def _are_all(calls: Sequence[MixerCall], found: Sequence[tuple[ArraysCache, _Arrays]]) -> bool:
    """Whether calls are all that changed these caches in a pass: one of each, and nothing else."""
    of_caches = {id(call.cache): call for call in calls}
    return len(of_caches) == len(calls) and all(
        _is_all(of_caches.get(id(cache)), before, tuple(cache.cache)) for cache, before in found
    )


def _is_all(call: MixerCall | None, before: _Arrays, now: _Arrays) -> bool:
    """Whether a call is all that changed a cache."""
    if call is None:
        return _are_same(before, now)
    return _are_same(before, call.found) and _are_same(call.left, now)


def _are_same(some: _Arrays, others: _Arrays) -> bool:
    return all(map(operator.is_, some, others))
