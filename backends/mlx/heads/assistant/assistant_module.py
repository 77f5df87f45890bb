"""Layers of Gemma 4's assistants, which attend to the keys and values of the model they draft for.

Gemma4AssistantForCausalLM of transformers 5 (models/gemma4_assistant). Names of modules are those
of the published weights.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Mapping

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gemma4_text import DecoderLayer, ModelArgs

from backends.mlx.heads.assistant.assistant_settings import AssistantSettings
from backends.mlx.heads.assistant.clustered_output import ClusteredOutput

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
        """Number type of what it computes."""
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
