"""Heads that read the last state of a model of MLX."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from backends.base import Context
from backends.files.head_folders.head_folder import HeadFolder
from backends.heads.hidden_states import Rows
from backends.heads.last_state import LastStateContext, LastStateHead, LastStateNet
from backends.mlx.context import MlxContext
from backends.mlx.heads.taps import add_final_states, remove_states
from backends.mlx.heads.weights import embedding_of
from backends.mlx.model import MlxModel


def load_last_state(folder: HeadFolder, target: MlxModel, context: MlxContext) -> "MlxLastState":
    """Load a head from its folder. Raises DraftUnavailableError: it cannot read the model."""
    assert target.module is not None, "the model is closed"
    embedding = embedding_of(target.module)

    def embed(tokens: Sequence[int]) -> Rows:
        return np.array(embedding(mx.array([*tokens])).astype(mx.float32))  # pyright: ignore

    net, facts = folder.last_state()
    return MlxLastState(LastStateNet(embed=embed, **net), target, context, **facts)


class MlxLastState(LastStateHead):
    def open_beside(self, context: Context) -> LastStateContext:
        assert isinstance(context, MlxContext)
        states = add_final_states(context, context.n_chunk)
        opened = self._opened(context, states, partial(remove_states, context, states))
        context.close_with(opened)
        return opened
