"""Inputs of a model's layers, of the width that a head reads."""

from collections.abc import Sequence

from backends.base import DraftUnavailableError
from backends.base.hidden_states import HiddenStates
from backends.mlx.heads.taps import add_layer_states, remove_states
from backends.mlx.mlx_context import MlxContext


def tapped_states(context: MlxContext, taps: Sequence[int], width: int) -> HiddenStates:
    """Let passes leave the inputs of layers, each of this width, from the next one on.

    Raises:
        DraftUnavailableError: the model has no such layers, or they are of another width.
    """
    states = add_layer_states(context, taps)
    if states.width != len(taps) * width:
        found = states.width // max(len(taps), 1)
        remove_states(context, states)
        raise DraftUnavailableError(
            "a head cannot read this model", f"its layers have {found:,} numbers, not {width:,}"
        )
    return states
