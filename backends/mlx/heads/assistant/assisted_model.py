"""What an assistant reads of its Gemma 4 model: its embedding, and two layers of its cache."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma4_text

from backends.base import ModelError
from backends.mlx.heads.assistant.assistant_module import AssistantModule, Shared
from backends.mlx.heads.assistant.assistant_settings import SLIDING, AssistantSettings
from backends.mlx.mlx_model import MlxModel

_OTHER = "Choose the assistant of this model."


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer whose keys and values an assistant reads.

    cache: place in the caches of the model. heads, size: of its keys and values. window: tokens
    that a layer of the assistant sees of it, its own included, None for all.
    """

    cache: int
    heads: int
    size: int
    window: int | None

    def of(self, caches: Sequence[Any], length: int) -> Shared:
        """Its first entries of these caches, as far as the token after them sees them."""
        cache = caches[self.cache]
        first = max(length - self.window + 1, 0) if self.window else 0
        return cache.keys[..., first:length, :], cache.values[..., first:length, :]

    def nothing(self, dtype: mx.Dtype) -> Shared:
        """Zeros in the place of an entry where there is none, as while costs are measured."""
        zeros = mx.zeros((1, self.heads, 1, self.size), dtype)
        return zeros, zeros


@dataclass(frozen=True, slots=True)
class AssistedModel:
    """What an assistant reads of its model.

    embed: of tokens, shape (n,), to (n, width), scaled. dtype: of what it computes. layers: by kind
    of the assistant's layers.
    """

    embed: Callable[[mx.array], mx.array]
    dtype: mx.Dtype
    layers: Mapping[str, SharedLayer]

    def shared(self, caches: Sequence[Any], length: int) -> dict[str, Shared]:
        """Keys and values by kind of layer, of the first length entries of the model's caches.

        Views: whoever keeps them makes the model copy its cache with the next token.
        """
        return {
            kind: layer.of(caches, length) if length else layer.nothing(self.dtype)
            for kind, layer in self.layers.items()
        }


def assisted_model(
    name: str, settings: AssistantSettings, module: AssistantModule, target: MlxModel
) -> AssistedModel:
    """The parts of a model that an assistant, called name, reads.

    Raises:
        ModelError: it is not the assistant of this model.
    """
    what = f"{name} cannot draft for {target.info.name}"
    text = _text_model(target.module)
    if text is None:
        why = f"it drafts for Gemma 4, and this model is a {target.info.architecture}"
        raise ModelError(what, why, _OTHER)
    for why in _reasons(settings, module, text):
        raise ModelError(what, why, _OTHER)
    embedding, scale = text.model.embed_tokens, text.model.embed_scale

    def embed(tokens: mx.array) -> mx.array:
        return embedding(tokens) * scale

    window, kinds = settings.layers.sliding_window, settings.layers.layer_types or ()
    return AssistedModel(
        embed,
        embed(mx.array([0])).dtype,
        {
            kind: SharedLayer(
                cache,
                text.layers[cache].self_attn.n_kv_heads,
                text.layers[cache].self_attn.head_dim,
                window if kind == SLIDING else None,
            )
            for kind, cache in _last_of_kinds(text).items()
            if kind in kinds
        },
    )


def _text_model(module: nn.Module | None) -> gemma4_text.Model | None:
    found: object = getattr(module, "language_model", module)
    return found if isinstance(found, gemma4_text.Model) else None


def _last_of_kinds(text: gemma4_text.Model) -> dict[str, int]:
    """The last layer of each kind that has keys and values, as later ones share them."""
    kinds = cast("Sequence[str]", text.args.layer_types)
    with_own = text.args.num_hidden_layers - text.args.num_kv_shared_layers
    return {kind: layer for layer, kind in enumerate(kinds[:with_own])}


def _reasons(
    settings: AssistantSettings, module: AssistantModule, text: gemma4_text.Model
) -> Sequence[str]:
    """Reasons against an assistant for a model."""
    width, n_vocab = text.args.hidden_size, text.args.vocab_size
    if settings.target_width != width:
        return [f"it is for models of width {settings.target_width:,}, and this one's is {width:,}"]
    if settings.layers.vocab_size != n_vocab:
        return [f"it knows {settings.layers.vocab_size:,} tokens, the model {n_vocab:,}"]
    last = _last_of_kinds(text)
    for number, layer in enumerate(module.model.layers):
        if layer.layer_type not in last:
            return [f"its layer {number} reads a {layer.layer_type} layer, and the model has none"]
        own, given = layer.self_attn, text.layers[last[layer.layer_type]].self_attn
        if own.head_dim != given.head_dim:
            return [
                f"its layer {number} has heads of {own.head_dim:,} numbers, "
                f"and the model's keys have {given.head_dim:,}"
            ]
        if own.n_heads % given.n_kv_heads:
            return [
                f"the {own.n_heads:,} heads of its layer {number} "
                f"cannot share {given.n_kv_heads:,} of the model"
            ]
    return []
