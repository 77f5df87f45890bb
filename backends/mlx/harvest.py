"""Passes over one answer at a time that leave what heads are trained on."""

from collections.abc import Sequence

import numpy as np

from backends.base import Context, DraftUnavailableError, Logits
from backends.heads.hidden_states import Rows
from backends.mlx.heads.taps import add_layer_states
from backends.mlx.layer_taps import layers_of
from backends.mlx.model import MlxModel


def layers(model: MlxModel) -> int:
    """Number of the layers whose inputs can be had; 0 for an architecture that hands out none."""
    assert model.module is not None, "the model is closed"
    try:
        Harvest(model, 1, 1, (0,)).close()
    except DraftUnavailableError:
        return 0
    return len(layers_of(model.module))


class Harvest:
    """As backends.llamacpp.harvest, of one sequence."""

    width = 1
    shares = False

    def __init__(self, model: MlxModel, n_ctx: int, width: int, taps: Sequence[int]) -> None:
        """width: is 1, whatever is asked.

        Raises:
            DraftUnavailableError: the architecture hands out no states.
            OutOfMemoryError: the context does not fit.
        """
        del width
        self._context = context = model.open(n_ctx, drafts=False)
        self._kinds = len(taps) + 1
        try:
            last = len(layers_of(context.model))
            self._states = add_layer_states(context, (*taps, last))
        except DraftUnavailableError:
            context.close()
            raise
        self.most = context.max_logits

    def begin(self, prefix: Sequence[int]) -> Rows:
        assert not prefix
        self._context.truncate(0)
        return np.empty((0, self._kinds, self._states.width // self._kinds), np.float32)

    def open(self) -> Context:
        self._context.truncate(0)
        return self._context

    def close_sequence(self, context: Context) -> None:
        """The next one takes its place."""

    def run(self, passes: Sequence[tuple[Context, Sequence[int]]]) -> tuple[Logits, Rows]:
        ((context, tokens),) = passes
        start, end = context.length, context.length + len(tokens)
        logits = context.forward(tokens, len(tokens))
        return logits, self._states.rows(start, end).reshape(len(tokens), self._kinds, -1)

    def close(self) -> None:
        self._context.close()
