"""Views of a model with other layers in the place of its own, which tell heads what they get."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn

from backends.heads.hidden_states import HiddenStates, Rows

Replace = Callable[[Any, str], Any]
"""What takes the place of a part of a model, by its path; None to look into it."""


def with_parts(held: Any, replace: Replace, path: str = "") -> Any:
    """Copy of a module with other parts; unchanged ones are shared, and all of them its own."""
    made = replace(held, path)
    if made is not None or not isinstance(held, dict | list):  # a module is a dict of its parts
        return held if made is None else made
    places = cast("Any", held.items() if isinstance(held, dict) else enumerate(held))
    changed: dict[Any, Any] = {}
    for key, part in places:
        new = with_parts(part, replace, f"{path}.{key}" if path else str(key))
        if new is not part:
            changed[key] = new
    if not changed:
        return held
    copied = copy.copy(held)
    for key, part in changed.items():
        copied[key] = part
    return copied


WithLayers = Callable[[nn.Module, str], Any]
"""Takes the place of the module that holds the layers: given a copy of it and their name there."""


def layers_of(model: nn.Module) -> list[nn.Module]:
    return list(cast("Sequence[nn.Module]", getattr(model, "layers", ())))


def with_layers(model: nn.Module, make: WithLayers) -> Any:
    """View of a model with what is made of the module that holds its layers as one list.

    None if it does not hold them as one list, or nothing is made. All weights are shared.
    """
    held = layers_of(model)

    def made(part: Any, _path: str) -> Any:
        for key, value in part.items() if held and isinstance(part, nn.Module) else ():
            if isinstance(value, list) and list(map(id, value)) == list(map(id, held)):
                return make(copy.copy(part), key)
        return None

    view = with_parts(model, made)
    return None if view is model else view


Inputs = dict[int, mx.array]
"""What layers were given in a pass, by number; lazy, float32 of (tokens, width).

The number of layers stands for what the output layer is given.
"""


class StandIn:
    """Takes the place of a module, and has its attributes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_module"], name)


class _Tapped(StandIn):
    def __init__(self, module: nn.Module, run: Callable[..., Any]) -> None:
        super().__init__(module)
        self._run = run

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """That of the module: architectures tell kinds of layers apart by it (olmo_hybrid)."""
        return type(self.__dict__["_module"])

    def __getitem__(self, name: str) -> Any:
        return self._module[name]

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._run(*given, **named)


class LayerTaps:
    """Follows the passes of a context while heads read what its layers are given.

    Without a head the model runs as it is. With some, layers are wrapped: what they are given is
    computed in a pass anyway, and is kept until the pass is counted in.
    """

    def __init__(self) -> None:
        self._states: list[HiddenStates] = []
        self._views: dict[int, tuple[nn.Module, Any]] = {}
        self._inputs: Inputs = {}
        """Of the pass that runs."""
        self._passes: list[Inputs] = []
        """Of passes that are not counted in yet, oldest first."""

    def add(self, states: HiddenStates, held: int) -> None:
        """Let passes leave rows from the next one on; held: tokens of the context."""
        states.begin(held)
        self._states.append(states)
        self.drop()
        self._views.clear()

    def remove(self, states: HiddenStates) -> None:
        self._states.remove(states)
        self.drop()
        self._views.clear()

    def rows(self, layers: Sequence[int], count: int) -> Rows:
        """Inputs of layers side by side, of the count tokens that are not counted in yet."""
        rows = np.hstack([
            np.concatenate([np.array(inputs[layer], copy=False) for inputs in self._passes])
            for layer in layers
        ])  # fmt: skip
        assert len(rows) == count, "passes are counted in one by one"
        return rows

    def run(self, model: nn.Module, tokens: mx.array, caches: Sequence[Any]) -> mx.array:
        if not self._states:
            return model(tokens, cache=caches)
        if id(model) not in self._views:
            wanted = {layer for states in self._states for layer in states.layers}
            self._views[id(model)] = model, tapped(model, wanted, self._add)
        self._inputs = {}
        logits = self._views[id(model)][1](tokens, cache=caches)
        self._passes.append(self._inputs)
        self._inputs = {}
        return logits

    def _add(self, number: int, given: Any) -> None:
        if not isinstance(given, mx.array):
            raise ValueError(f"layer {number} was given {type(given).__name__}")
        self._inputs[number] = given.reshape(-1, given.shape[-1]).astype(mx.float32)

    @property
    def unread(self) -> list[mx.array]:
        """What passes leave that are not counted in yet: to be computed along with them."""
        return [array for inputs in self._passes for array in inputs.values()]

    def take_last(self) -> Inputs:
        """Take out what the last pass left, as it may be dropped."""
        return self._passes.pop() if self._states else {}

    def put_back(self, inputs: Inputs) -> None:
        """Count in a pass that was taken out, with the ones to come."""
        if self._states:
            self._passes.append(inputs)

    def passed(self, start: int, count: int) -> None:
        """Hand on the rows of the last passes, over count tokens from position start on."""
        try:
            for states in self._states:
                states.passed(start, count)
        finally:
            self.drop()

    def passed_nodes(self, count: int) -> None:
        try:
            for states in self._states:
                states.passed_nodes(count)
        finally:
            self.drop()

    def committed(self, start: int, path: Sequence[int]) -> None:
        for states in self._states:
            states.committed(start, path)

    def cut(self, length: int) -> None:
        """Forget rows of positions from length on, and of passes that are not counted in."""
        for states in self._states:
            states.cut(length)
        self.drop()

    def forget_all(self) -> None:
        self.committed(0, ())
        self.cut(0)

    def begin(self, held: int) -> None:
        for states in self._states:
            states.begin(held)
        self.drop()

    def drop(self) -> None:
        self._passes.clear()

    def close(self) -> None:
        self._states.clear()
        self._views.clear()
        self.drop()


def tapped(model: nn.Module, wanted: set[int], add: Callable[[int, Any], None]) -> Any:
    """View of a model that hands what layers are given to add; None if it cannot be made.

    wanted: numbers of layers; that of all layers stands for what the output layer is given, which
    is what the module with the layers returns.
    """
    count = len(layers_of(model))

    def entering(layer: nn.Module, number: int) -> _Tapped:
        def run(*given: Any, **named: Any) -> Any:
            add(number, given[0] if given else None)
            return layer(*given, **named)

        return _Tapped(layer, run)

    def leaving(body: nn.Module) -> _Tapped:
        def run(*given: Any, **named: Any) -> Any:
            left = body(*given, **named)
            add(count, left)
            return left

        return _Tapped(body, run)

    def exchange(body: nn.Module, name: str) -> Any:
        body[name] = [
            entering(layer, number) if number in wanted else layer
            for number, layer in enumerate(body[name])
        ]
        if count not in wanted:
            return body
        return None if type(body) is type(model) else leaving(body)  # that returns logits

    return with_layers(model, exchange)
