"""Gemma 4's assistants, which read the cache of the model they draft for."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma4_text
from mlx_lm.models.cache import KVCache

from backends.base import DraftUnavailableError, ModelError, check_room, check_truncation
from backends.files.head_folders.head_folder import HeadFolder
from backends.files.mlx_folder import REMEDY
from backends.heads.hidden_states import HiddenStates
from backends.mlx.context import MlxContext
from backends.mlx.heads.assistant_layers import (
    SLIDING,
    AssistantModule,
    AssistantSettings,
    Shared,
    read_assistant,
)
from backends.mlx.heads.taps import MlxHeadContext, add_final_states, remove_states
from backends.mlx.heads.weights import LoadedHead, filled, read_weights
from backends.mlx.model import MlxModel

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
    """The parts of a model that an assistant, called name, reads."""
    what = f"{name} cannot draft for {target.info.name}"
    text = _text_model(target.module)
    if text is None:
        why = f"it drafts for Gemma 4, and this model is a {target.info.architecture}"
        raise ModelError(what, why, _OTHER)
    for why in _reasons(module, text):
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


def _reasons(module: AssistantModule, text: gemma4_text.Model) -> Iterator[str]:
    last = _last_of_kinds(text)
    for number, layer in enumerate(module.model.layers):
        if layer.layer_type not in last:
            yield f"its layer {number} reads a {layer.layer_type} layer, and the model has none"
            return
        own, given = layer.self_attn, text.layers[last[layer.layer_type]].self_attn
        if own.head_dim != given.head_dim:
            yield (
                f"its layer {number} has heads of {own.head_dim:,} numbers, "
                f"and the model's keys have {given.head_dim:,}"
            )
        if own.n_heads % given.n_kv_heads:
            yield (
                f"the {own.n_heads:,} heads of its layer {number} "
                f"cannot share {given.n_kv_heads:,} of the model"
            )


_FAILED = "the assistant could not draft"


class AssistantContext(MlxHeadContext):
    """Reads a token and the hidden state before it, with the model's own entries.

    What the model has passed need not be read, so that only later tokens take a pass, all of them
    at the place after the model's last entry. Their states are the assistant's own but for that of
    the model's last token. Its own entries it keeps none.
    """

    kv_bytes_per_token = 0

    def __init__(
        self,
        module: AssistantModule,
        assisted: AssistedModel,
        target: MlxContext,
        states: HiddenStates,
    ) -> None:
        """Draft beside a context; states: what the model's last layer leaves in it."""
        super().__init__(target, states, module.n_vocab)
        self._module: AssistantModule | None = module
        self._assisted: AssistedModel | None = assisted
        self._length = 0
        """Tokens passed: those held, and in a draft those that are still being computed."""
        self._own: mx.array | None = None
        """The assistant's state after the last of them, if that took a pass."""

    def rollback_to(self, length: int) -> int:
        """At most what the model has passed: the assistant's own state after more is not kept."""
        return min(length, len(self.tokens), self._target.length)

    def _kept(self) -> Sequence[mx.array]:
        return [] if self._own is None else [self._own]

    @contextmanager
    def growing(self, count: int) -> Generator[None]:
        """Guard passes over count more tokens; if one fails, the context is as before."""
        check_room(self, count)
        self._length, own = self.length, self._own
        self._states.release(self._states.end - 1)  # no other is read
        try:
            yield
        except (RuntimeError, ValueError, ModelError) as error:
            self._own = own
            if isinstance(error, ModelError):
                raise
            raise ModelError(_FAILED, str(error)) from error

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array:
        passed = min(max(self._target.length - self._length, 0), tokens.size)
        if tokens.size - n_logits < passed:
            raise ModelError(_FAILED, "its model has read further")
        if passed:
            self._length += passed
            self._own = None
        rows = [self._pass(tokens[place : place + 1]) for place in range(passed, tokens.size)]
        return mx.concatenate(rows[-n_logits:]) if n_logits else mx.zeros((0, self._n_vocab))

    def _pass(self, token: mx.array) -> mx.array:
        """Lazy logits after a token, shape (1, n_vocab)."""
        assert self._module is not None, "the context is closed"
        assert self._assisted is not None, "the context is closed"
        place = self._target.length
        shared = self._assisted.shared(self._target.settled_caches(), place)
        embedded = self._assisted.embed(token)
        logits, self._own = self._module(embedded, self._state(), shared, place)
        self._length += 1
        return logits

    def _state(self) -> mx.array:
        """The state after the last token; zeros if none is known, as while costs are measured."""
        states, length = self._states, self._length
        if length > self._target.length and self._own is not None:
            return self._own
        if states.first < length == states.end:
            return mx.array(states.rows(length - 1, length))
        return mx.zeros((1, states.width))

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        if length < len(self.tokens):
            del self.tokens[length:]
            self._own = None

    def close(self) -> None:
        if self._module is None:
            return
        self._module = self._assisted = self._own = None
        remove_states(self._target, self._states)


def load_assistant(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    name = folder.head.path.name
    settings = read_assistant(folder.head.settings)
    module = AssistantModule(settings)
    assisted = assisted_model(name, settings, module, target)
    left_out = "lm_head." if settings.is_tied else ()  # a copy of the embedding
    stored = {name: name for name in folder.head.tensors if not name.startswith(left_out)}
    filled(module, read_weights(folder, stored))
    module.set_dtype(assisted.dtype)  # of the keys it reads: others would be converted in each pass
    if settings.clusters:
        clusters = module.masked_embedding
        clusters.token_ordering = clusters.token_ordering.astype(mx.int32)
        if not clusters.is_sound:
            why = "token_ordering does not name each token once"
            raise ModelError(f"the weights of {name} are damaged", why, REMEDY)
    mx.eval(module.parameters())

    def opened(context: MlxContext) -> AssistantContext:
        caches = context.settled_caches()
        if not all(isinstance(caches[layer.cache], KVCache) for layer in assisted.layers.values()):
            why = "its model does not keep the keys and values of every token"
            raise DraftUnavailableError("the assistant cannot draft", why)
        return AssistantContext(module, assisted, context, add_final_states(context))

    return LoadedHead(module, opened)
