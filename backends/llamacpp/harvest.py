"""Passes over several answers at once that leave what heads are trained on."""

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Context, Logits
from backends.files.gguf_drafter import trunk_layers
from backends.files.gguf_header import read_header
from backends.heads.hidden_states import Rows
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.head_checks import TAPPED
from backends.llamacpp.heads.opening import keep_layer_inputs, layer_inputs
from backends.llamacpp.model import LlamaModel


def layers(model: LlamaModel) -> int:
    """Number of the layers whose inputs can be had; 0 for an architecture that hands out none."""
    header = read_header(model.info.path)
    return trunk_layers(header) if header.architecture in TAPPED else 0


class Harvest:
    """A context with sequences that begin with a common text, and passes that leave states.

    The engine leaves last states of tokens with logits alone, so that all tokens get some.
    """

    def __init__(self, model: LlamaModel, n_ctx: int, width: int, taps: Sequence[int]) -> None:
        """width: sequences at once, if the model can share a context. taps: layers.

        Raises:
            OutOfMemoryError: the context does not fit.
        """
        context = model.open(n_ctx, drafts=False, sequences=width + 1)
        assert isinstance(context, LlamaContext)
        self._context, self._taps = context, tuple(taps)
        self._state_width: int = api.llama_model_n_embd_out(model.pointer)
        self.width = min(width, max(context.max_sequences - 1, 1))
        self.most = context.max_logits
        """Tokens of a pass."""
        self.shares = context.max_sequences > 1
        for layer in self._taps:
            keep_layer_inputs(context.cells.pointer, layer)
        api.llama_set_embeddings(context.cells.pointer, True)

    def begin(self, prefix: Sequence[int]) -> Rows:
        """Forget all, and read what the next sequences begin with. States: (T, S, d)."""
        assert self.shares or not prefix
        self._context.truncate(0)
        pieces = range(0, len(prefix), self.most)
        read = [self.run([(self._context, prefix[at : at + self.most])])[1] for at in pieces]
        none = np.empty((0, len(self._taps) + 1, self._state_width), np.float32)
        return np.concatenate([none, *read])

    def open(self) -> Context:
        """Open a sequence that begins with the prefix; close it before the next begin."""
        if self.shares:
            return self._context.fork(self._context, self._context.length)
        self._context.truncate(0)
        return self._context

    def close_sequence(self, context: Context) -> None:
        if context is not self._context:
            context.close()

    def run(self, passes: Sequence[tuple[Context, Sequence[int]]]) -> tuple[Logits, Rows]:
        """Append tokens to sequences: logits (N, V), a view, and states (N, S, d) of all of them.

        Rows are those of the first sequence's tokens, then the next one's.

        Raises:
            ModelError: the engine failed; all are unchanged.
        """
        count, width = sum(len(tokens) for _, tokens in passes), self._state_width
        assert count <= self.most
        self._context.forward_together(passes)
        pointer = self._context.cells.pointer
        states = [layer_inputs(pointer, layer, count, width) for layer in self._taps]
        last = np.ctypeslib.as_array(api.llama_get_embeddings(pointer), (count, width))
        return self._context.cells.rows(count), np.stack([*states, last], axis=1)

    def close(self) -> None:
        self._context.close()
