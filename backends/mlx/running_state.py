"""Models of MLX that keep a running state: what a pass changed, and ways back from it."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import copy
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import ArraysCache, KVCache

from backends.base.checkpoints import Checkpoints
from backends.mlx.caches import leaves
from backends.mlx.layer_taps import StandIn, with_parts


class HeldStates:
    """Arrays of every cache with a running state.

    An array is never changed by a pass, which puts another in its place: holding it copies nothing.
    """

    def __init__(self, caches: Sequence[Any]) -> None:
        self._held = [
            (cache, [copy.copy(array) for array in cache.cache])
            for cache in leaves(caches)
            if type(cache) is ArraysCache
        ]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    @property
    def caches(self) -> list[ArraysCache]:
        return [cache for cache, _ in self._held]

    def put_back(self) -> None:
        for cache, arrays in self._held:
            cache.cache = [copy.copy(array) for array in arrays]

    def compute(self) -> None:
        """Compute the arrays, so that they hold neither the passes that give them nor more memory.

        Many are the end of an array of a whole pass, whose memory they would keep.
        """
        self._held = [
            (cache, [None if array is None else mx.contiguous(array) for array in arrays])
            for cache, arrays in self._held
        ]
        mx.eval(self._arrays)

    @property
    def _arrays(self) -> list[mx.array]:
        return [array for _, arrays in self._held for array in arrays if array is not None]


# Records what a pass gives to the layers with a running state, so that a part of it can be rerun.
#
# A state after fewer tokens of a pass follows from the state before it and the first rows of what
# the layer was given. Its projections, which are nearly all of its weights, are not computed again:
# only the convolution and the scan, over the rows that are kept.


@dataclass(slots=True)
class _Tape:
    """A mixer's input, shape (1, tokens, width), and what its projections made of it."""

    given: mx.array
    projected: dict[str, mx.array] = field(default_factory=dict[str, mx.array])

    def first(self, count: int) -> "_Tape":
        rows = {name: array[:, :count] for name, array in self.projected.items()}
        return _Tape(self.given[:, :count], rows)


@dataclass(frozen=True, slots=True)
class MixerCall:
    cache: ArraysCache
    found: Sequence[mx.array | None]
    """The cache's arrays before it."""
    left: Sequence[mx.array | None]
    """The cache's arrays after it."""
    rerun: Callable[[int], object]
    """Run it again over the first so many tokens; its cache holds the state before the pass."""


@dataclass(slots=True)
class CallLog:
    """Where mixers record their calls; None if they shall not."""

    calls: list[MixerCall] | None = None


def recording_view(model: nn.Module, log: CallLog) -> nn.Module:
    def recorded(part: Any, _path: str) -> Any:
        is_one = isinstance(part, nn.Module) and is_mixer(part)
        return _RecordedMixer(part, log) if is_one else None

    return cast("nn.Module", with_parts(model, recorded))


def is_mixer(module: nn.Module) -> bool:
    """Whether a module mixes tokens by a convolution, and has projections of its own.

    What records nothing of use costs no more than the call: whether every state was recorded is
    asked when it is needed.
    """
    kinds = [type(child) for child in module.values()]
    return nn.Conv1d in kinds and any(kind in _PROJECTIONS for kind in kinds)


_PROJECTIONS = (nn.Linear, nn.QuantizedLinear)


@dataclass(slots=True)
class _Player:
    """The tape that a mixer's projections record to or play from; no cycle holds weights so."""

    tape: _Tape | None = None


class _RecordedMixer(StandIn):
    def __init__(self, mixer: nn.Module, log: CallLog) -> None:
        super().__init__(copy.copy(mixer))
        self._log = log
        self._player = _Player()
        for name, child in mixer.items():
            if type(child) in _PROJECTIONS:
                self._module[name] = _Projection(name, child, self._player)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        calls = self._log.calls
        arguments = (*positional, *named.values())
        given = [one for one in arguments if isinstance(one, mx.array)]
        caches = [one for one in arguments if type(one) is ArraysCache]
        if calls is None or len(given) != 1 or len(caches) != 1:  # a mask is of the whole pass
            return self._module(*positional, **named)
        tape = _Tape(given[0])

        def run(played: _Tape) -> Any:
            """Run the mixer with a tape's input in the place of the pass's own."""
            self._player.tape = played
            try:
                return self._module(
                    *(played.given if one is given[0] else one for one in positional),
                    **{
                        name: played.given if one is given[0] else one
                        for name, one in named.items()
                    },
                )
            finally:
                self._player.tape = None

        found = tuple(caches[0].cache)
        made = run(tape)
        left = tuple(caches[0].cache)
        calls.append(MixerCall(caches[0], found, left, lambda count: run(tape.first(count))))
        return made


class _Projection(StandIn):
    """Takes the place of a projection: what it made of a mixer's input is made once."""

    def __init__(self, name: str, projection: nn.Module, player: _Player) -> None:
        super().__init__(projection)
        self._name = name
        self._player = player

    def __call__(self, given: mx.array) -> mx.array:
        tape = self._player.tape
        if tape is None or given is not tape.given:
            return self._module(given)
        if self._name not in tape.projected:
            tape.projected[self._name] = self._module(given)
        return tape.projected[self._name]


_Arrays = Sequence[mx.array | None]


@dataclass(frozen=True, slots=True)
class _Pass:
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
        self._checkpoints = Checkpoints[HeldStates](most_bytes)
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

    def rollback_to(self, length: int) -> int:
        if self._last is not None and self._last.start <= length:
            return length
        return self._checkpoints.latest(length)

    def go_back(self, length: int) -> None:
        """Go back to a reachable length; the caches have then read so many tokens or fewer."""
        if self._last is not None and self._last.start <= length:
            if length < self.read:
                self._go_back_into(self._last, length)
        else:
            self._checkpoints[length].put_back()
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
        if self.read and not self._checkpoints.has(self.read, is_brief=is_brief):
            states = HeldStates(self._caches)
            states.compute()
            self._checkpoints.hold(self.read, states, is_brief=is_brief)


def _are_all(calls: Sequence[MixerCall], found: Sequence[tuple[ArraysCache, _Arrays]]) -> bool:
    """Whether calls are all that changed these caches in a pass: one of each, and nothing else."""
    of_caches = {id(call.cache): call for call in calls}
    if len(of_caches) != len(calls):
        return False
    for cache, before in found:
        call, now = of_caches.get(id(cache)), cache.cache
        seams = [(before, now)] if call is None else [(before, call.found), (call.left, now)]
        if not all(one is other for seam in seams for one, other in zip(*seam, strict=True)):
            return False
    return True
