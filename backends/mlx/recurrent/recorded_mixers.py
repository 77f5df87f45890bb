"""Records what a pass gives to the layers with a running state, so that a part of it can be rerun.

A state after fewer tokens of a pass follows from the state before it and the first rows of what the
layer was given. Its projections, which are nearly all of its weights, are not computed again: only
the convolution and the scan, over the rows that are kept.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import ArraysCache


@dataclass(slots=True)
class _Tape:
    """A mixer's input, shape (1, tokens, width), and what its projections made of it."""

    given: mx.array
    projected: dict[str, mx.array] = field(default_factory=dict[str, mx.array])

    def first(self, count: int) -> "_Tape":
        """The part of the first tokens."""
        rows = {name: array[:, :count] for name, array in self.projected.items()}
        return _Tape(self.given[:, :count], rows)


@dataclass(frozen=True, slots=True)
class MixerCall:
    """One call of a mixer in a pass."""

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
    """View of a model whose mixers record their calls."""
    return cast("nn.Module", _viewed(model, log))


def _viewed(value: Any, log: CallLog) -> Any:
    """Copy of a module, or of a list of modules, on the way to a mixer; others as they are."""
    if isinstance(value, list):
        items = [_viewed(item, log) for item in cast("list[Any]", value)]
        return items if _differ(items, cast("list[Any]", value)) else value
    if not isinstance(value, nn.Module):
        return value
    if is_mixer(value):
        return _RecordedMixer(value, log)
    viewed = {key: _viewed(child, log) for key, child in value.items()}
    if not _differ(list(viewed.values()), list(value.values())):
        return value
    view = copy.copy(value)
    for key, child in viewed.items():
        view[key] = child
    return view


def _differ(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return any(one is not other for one, other in zip(some, others, strict=True))


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
    """The tape that a mixer's projections record to, or play from."""

    tape: _Tape | None = None


class _RecordedMixer:
    """Takes the place of a mixer."""

    def __init__(self, mixer: nn.Module, log: CallLog) -> None:
        self._mixer = copy.copy(mixer)
        self._log = log
        self._player = _Player()
        for name, child in mixer.items():
            if type(child) in _PROJECTIONS:
                self._mixer[name] = _Projection(name, child, self._player)

    def __getattr__(self, name: str) -> Any:
        """Attribute that an architecture reads from its mixers."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_mixer"], name)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        calls = self._log.calls
        arguments = (*positional, *named.values())
        given = [one for one in arguments if isinstance(one, mx.array)]
        caches = [one for one in arguments if type(one) is ArraysCache]
        if calls is None or len(given) != 1 or len(caches) != 1:  # a mask is of the whole pass
            return self._mixer(*positional, **named)
        tape = _Tape(given[0])

        def run(played: _Tape) -> Any:
            """Run the mixer with a tape's input in the place of the pass's own."""
            self._player.tape = played
            try:
                return self._mixer(
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


class _Projection:
    """Takes the place of a projection: what it made of a mixer's input is made once."""

    def __init__(self, name: str, projection: nn.Module, player: _Player) -> None:
        self._name = name
        self._projection = projection
        self._player = player

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_projection"], name)

    def __call__(self, given: mx.array) -> mx.array:
        tape = self._player.tape
        if tape is None or given is not tape.given:
            return self._projection(given)
        if self._name not in tape.projected:
            tape.projected[self._name] = self._projection(given)
        return tape.projected[self._name]
