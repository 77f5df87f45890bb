"""Settings of Gemma 4's assistants, as their config.json has them.

Gemma4AssistantConfig of transformers 5 (models/gemma4_assistant).
"""

# mlx-lm is typed in part only:
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlx_lm.models.gemma4_text import ModelArgs

from backends.files.head_folders.settings import Settings

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


def read_assistant(config: Mapping[str, Any]) -> AssistantSettings:
    """Settings of an assistant, given its config.json.

    Raises:
        ValueError: they are not those of an assistant, in words.
    """
    settings = Settings(config)
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
