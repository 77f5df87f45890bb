"""Hidden states that passes leave for a head, and contexts that draft from them."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from backends.base import DraftUnavailableError, Logits
from backends.heads.head import HeadContext
from backends.heads.hidden_states import HiddenStates
from backends.mlx.caches import make_caches
from backends.mlx.context import MlxContext
from backends.mlx.device_sampling import MlxSampling, SampledContext
from backends.mlx.layer_taps import layers_of, tapped


def add_layer_states(
    context: MlxContext, layers: Sequence[int], most: int | None = None
) -> HiddenStates:
    """Let passes leave the inputs of layers, side by side, from the next one on.

    layers: numbered as `hidden_states` of Hugging Face's transformers: 0 is the embedding, number i
    the input of layer i, and the number of layers what add_final_states gives. The rows are
    float32, of shape (tokens, len(layers) * width). most: rows kept, at least of a pass; None for
    all.
    """
    width = sum(_widths(context.model, layers))
    taps = context.taps
    most = context.n_ctx if most is None else most
    states = HiddenStates(lambda count: taps.rows(layers, count), width, most, layers)
    context.add_states(states)
    return states


def add_final_states(context: MlxContext, most: int | None = None) -> HiddenStates:
    """Let passes leave what the output layer reads, from the next one on: float32, (tokens, width).

    That is after the final norm, as next-token layers are given it by vLLM and llama.cpp (`h_nextn`
    of src/models/qwen35.cpp): their own norm (`pre_fc_norm_hidden`, `hnorm`) comes on top. most: as
    for add_layer_states.
    """
    return add_layer_states(context, (len(layers_of(context.model)),), most)


def remove_states(context: MlxContext, states: HiddenStates) -> None:
    """Leave them no longer, and free them; without other heads passes cost what they did before."""
    context.remove_states(states)
    states.begin(0)


class MlxHeadContext(HeadContext, SampledContext):
    """A context that drafts from states which the passes of a model's context leave."""

    def __init__(self, target: MlxContext, states: HiddenStates, n_vocab: int) -> None:
        self._target, self._states, self._n_vocab = target, states, n_vocab
        self.n_ctx = self.max_rollback = target.n_ctx
        self.n_chunk, self.max_logits = target.n_chunk, target.max_logits
        self.device_sampling = MlxSampling(self)
        self.tokens = []

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        assert 0 <= n_logits <= min(len(tokens), self.max_logits)
        assert len(tokens) <= self.n_chunk
        with self.growing(len(tokens)):
            rows = self.logits(mx.array(list(tokens)), n_logits).astype(mx.float32)
            mx.eval(rows, *self._kept())
        self.passed(tokens)
        return np.array(rows, copy=False)

    def _kept(self) -> Sequence[mx.array]:
        """What a pass leaves for the next one, to be computed along with its rows."""
        raise NotImplementedError

    def passed(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)


def _widths(model: nn.Module, layers: Sequence[int]) -> list[int]:
    """Width of the input of each layer, by a pass of which only shapes are found out."""
    count = len(layers_of(model))
    if wrong := [layer for layer in layers if not 0 <= layer <= count]:
        raise DraftUnavailableError(
            "a head cannot read this model", f"it reads layer {wrong[0]} of {count}"
        )
    found: dict[int, mx.array] = {}

    def add(number: int, given: mx.array) -> None:
        found[number] = given

    view = tapped(model, set(layers), add)
    if view is not None:
        view(mx.array([[0]]), cache=make_caches(model))
    given = [found.get(layer) for layer in layers]
    if not all(isinstance(one, mx.array) and one.shape[:-1] == (1, 1) for one in given):
        raise DraftUnavailableError(
            "a head cannot read this model",
            f"{type(model).__module__} does not hand its layers states one by one",
        )
    return [found[layer].shape[-1] for layer in layers]
