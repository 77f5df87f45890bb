"""Settings of Gemma 4's assistants, as their config.json has them.

Gemma4AssistantConfig of transformers 5 (models/gemma4_assistant).
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import DecoderLayer, ModelArgs

from backends.files.head_folders.stored_head import Settings

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers, as in the settings."""

_MOST_LAYERS = 512
"""Published assistants have four."""

_ABSENT = ("hidden_size_per_layer_input", "enable_moe_block", "attention_bias")
"""Parts of Gemma 4 models that assistants do without."""

_COUNTS = (
    "global_head_dim",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
)


@dataclass(frozen=True, slots=True)
class AssistantSettings:
    """Sizes of an assistant.

    layers: those of a Gemma 4 model, of which none has keys and values. target_width: of the hidden
    states of the model it drafts for. is_tied: whether its embedding is its output layer too.
    clusters: of its output layer, 0 if it scores every token; active_clusters: those it scores.
    """

    layers: ModelArgs
    target_width: int
    is_tied: bool
    clusters: int = 0
    active_clusters: int = 0


def read_assistant(settings: Settings) -> AssistantSettings:
    layers = _layers(settings.part("text_config"))
    target_width = _positive(settings, "backbone_hidden_size", 1536)
    is_tied = settings.flag("tie_word_embeddings", default=True)
    if not settings.flag("use_ordered_embeddings"):
        return AssistantSettings(layers, target_width, is_tied)
    clusters = _positive(settings, "num_centroids", 2048)
    active = _positive(settings, "centroid_intermediate_top_k", 32)
    if layers.vocab_size % clusters:
        raise ValueError(f"{layers.vocab_size:,} tokens are not {clusters:,} clusters of one size")
    if active > clusters:
        raise ValueError(f"it chooses {active:,} of {clusters:,} clusters")
    return AssistantSettings(layers, target_width, is_tied, clusters, active)


def _layers(text: Settings) -> ModelArgs:
    if present := [part for part in _ABSENT if text.values.get(part)]:
        raise ValueError(f"{present[0]} is set in its config.json, and no assistant has that")
    for key in _COUNTS:
        _positive(text, key, 1)
    for key in ("num_hidden_layers", "sliding_window_pattern"):  # of which lists are made
        if text.count(key, 1) > _MOST_LAYERS:
            raise ValueError(f"{key} in its config.json is {text.count(key):,}")
    if text.count("sliding_window", 2) < 2:  # one would see nothing: no token has an own entry
        raise ValueError("its window sees no token")
    own = {"hidden_size_per_layer_input": 0, "use_double_wide_mlp": False}
    layers = ModelArgs.from_dict({**text.values, **own})
    layers.num_kv_shared_layers = layers.num_hidden_layers  # none has keys and values
    kinds = text.texts("layer_types") or tuple(layers.layer_types or ())
    if not 0 < len(kinds) == layers.num_hidden_layers <= _MOST_LAYERS:
        raise ValueError("layer_types in its config.json is no list of its layers")
    if unknown := set(kinds) - {FULL, SLIDING}:
        raise ValueError(f"it has layers of the kind {min(unknown)[:40]!r}")
    return layers


def _positive(settings: Settings, key: str, default: int) -> int:
    value = settings.count(key, default)
    if not value:
        raise ValueError(f"{key} in its config.json is 0")
    return value


# Output layer that knows the tokens of the likeliest clusters alone.
#
# Gemma4AssistantMaskedEmbedder of transformers 5 (models/gemma4_assistant), of the assistants of
# the smallest Gemma 4 models.


class ClusteredOutput(nn.Module):
    """Chooses clusters by the scores of their centroids, and scores the tokens in them.

    Names of weights are those of the published ones.
    """

    def __init__(self, width: int, n_vocab: int, clusters: int, active: int) -> None:
        """clusters: of equal size. active: those whose tokens get a score."""
        super().__init__()
        self.centroids = nn.Linear(width, clusters, bias=False)
        self.token_ordering = mx.zeros((n_vocab,), dtype=mx.int32)
        self._active = active
        self._clusters = clusters

    def __call__(self, states: mx.array, table: nn.Embedding) -> mx.array:
        """Logits, (n, n_vocab), of states, (n, width); -inf outside of the chosen clusters.

        table: rows by token. The reference gives the others a score below all of the chosen ones
        instead, which a drafter would sample from.
        """
        scores = self.centroids(states)
        chosen = mx.argpartition(scores, -self._active, axis=-1)[:, -self._active :]
        ids = self.token_ordering.reshape(self._clusters, -1)[chosen].flatten(1)
        logits = (table(ids) @ states[:, :, None])[:, :, 0]
        unknown = mx.full((states.shape[0], self.token_ordering.size), -mx.inf, dtype=logits.dtype)
        return mx.put_along_axis(unknown, ids, logits, axis=-1)

    @property
    def is_sound(self) -> bool:
        """Whether the clusters hold each token once, which passes do not check."""
        ordered = mx.sort(self.token_ordering)
        return mx.array_equal(ordered, mx.arange(ordered.size, dtype=ordered.dtype)).item() is True


# Layers of Gemma 4's assistants, which attend to the keys and values of the model they draft for.
#
# Gemma4AssistantForCausalLM of transformers 5 (models/gemma4_assistant). Names of modules are those
# of the published weights.


Shared = tuple[mx.array, mx.array]
"""Keys and values of a layer of the model, oldest first, each of shape (1, heads, tokens, size)."""


class AssistantModule(nn.Module):
    """Reads a token and the state before it; its layers have queries only."""

    def __init__(self, settings: AssistantSettings) -> None:
        super().__init__()
        layers = settings.layers
        self.n_vocab = layers.vocab_size
        self.model = _Layers(layers)
        self.pre_projection = nn.Linear(2 * settings.target_width, layers.hidden_size, bias=False)
        self.post_projection = nn.Linear(layers.hidden_size, settings.target_width, bias=False)
        if not settings.is_tied:
            self.lm_head = nn.Embedding(layers.vocab_size, layers.hidden_size)
        if settings.clusters:
            self.masked_embedding = ClusteredOutput(
                layers.hidden_size,
                layers.vocab_size,
                settings.clusters,
                settings.active_clusters,
            )

    @property
    def dtype(self) -> mx.Dtype:
        return self.model.norm.weight.dtype

    def __call__(
        self, embedded: mx.array, state: mx.array, shared: Mapping[str, Shared], position: int
    ) -> tuple[mx.array, mx.array]:
        """Lazy logits after a token, (1, n_vocab), and the assistant's own state, (1, width).

        embedded: the token as the model embeds it; state: that of the model or the assistant before
        it; both of shape (1, width). shared: by kind of layer. position: of the first token that
        the model has not read, the same for all tokens of a draft.
        """
        together = mx.concatenate([embedded.astype(self.dtype), state.astype(self.dtype)], axis=-1)
        hidden = self.pre_projection(together)[None]
        for layer in self.model.layers:
            hidden, _, _ = layer(hidden, shared_kv=shared[layer.layer_type], offset=position)
        hidden = self.model.norm(hidden)[0]
        return self._logits(hidden), self.post_projection(hidden)

    def _logits(self, hidden: mx.array) -> mx.array:
        table = self.lm_head if "lm_head" in self else self.model.embed_tokens
        if "masked_embedding" in self:
            return self.masked_embedding(hidden, table)
        return table.as_linear(hidden)


class _Layers(nn.Module):
    """The part that is named "model" in the weights; its embedding is an output layer alone."""

    def __init__(self, layers: ModelArgs) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(layers.vocab_size, layers.hidden_size)
        self.layers = [DecoderLayer(layers, place) for place in range(layers.num_hidden_layers)]
        self.norm = nn.RMSNorm(layers.hidden_size, eps=layers.rms_norm_eps)
