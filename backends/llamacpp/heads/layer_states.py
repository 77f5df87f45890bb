"""Inputs of a model's layers, side by side, for a head to read."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from backends.base.hidden_states import HiddenStates, Rows
from backends.llamacpp.heads.pass_rows import keep_layer_inputs, layer_inputs
from backends.llamacpp.llama_context import LlamaContext


def add_layer_states(
    target: LlamaContext, layers: Sequence[int], width: int, resources: ExitStack
) -> HiddenStates:
    """Let passes leave the inputs of layers, each of this width, from the next one on.

    resources: to leave them no longer.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export them.
    """
    pointer = target.pointer
    assert pointer is not None, "a context that was closed has no heads"

    def read(count: int) -> Rows:
        return np.hstack([layer_inputs(pointer, layer, count, width) for layer in layers])

    read_by_others = target.read_layers
    for layer in set(layers):
        if layer not in read_by_others:  # setting one makes the engine plan anew
            keep_layer_inputs(pointer, layer)
        resources.callback(_forget, target, layer)
    states = HiddenStates(read, len(layers) * width, target.n_ctx, layers)
    target.add_states(states)
    resources.callback(target.remove_states, states)
    return states


def _forget(target: LlamaContext, layer: int) -> None:
    """Leave a layer's inputs no longer, unless another head reads them."""
    if target.pointer is not None and layer not in target.read_layers:  # not closed before the head
        keep_layer_inputs(target.pointer, layer, keep=False)
