"""Weights of a head, from which contexts of it open."""

from collections.abc import Callable
from dataclasses import dataclass

from mlx import nn

from backends.base import Context
from backends.mlx.mlx_context import MlxContext


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """What a loader of one kind of head returns.

    weights: its own, without those it shares with its model. open: an empty context beside one of
    the model; may raise OutOfMemoryError, or DraftUnavailableError if it cannot read the model.
    shared_bytes: of the model's weights that are read to draft a token, such as its output layer.
    """

    weights: nn.Module
    open: Callable[[MlxContext], Context]
    shared_bytes: int = 0
