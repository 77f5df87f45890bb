"""A head loaded by MLX: layers that draft for one model from its hidden states."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models import qwen3_5, qwen3_next
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import KVCache
from mlx_lm.utils import get_total_parameters

from backends.base import Context, DraftUnavailableError
from backends.files.gguf_drafter import TrainedKind
from backends.files.head_folders.head_folder import HeadFolder, checked_head_folder
from backends.heads.head import LoadedLayers, head_info
from backends.heads.hidden_states import Rows
from backends.heads.last_state import LastStateContext, LastStateHead, LastStateNet
from backends.mlx.caches import bytes_per_token
from backends.mlx.context import MlxContext
from backends.mlx.folder_checks import loading
from backends.mlx.heads.assistant import load_assistant
from backends.mlx.heads.blocks import load_dflash
from backends.mlx.heads.chain import MlxChainContext, load_eagle3
from backends.mlx.heads.taps import add_final_states, remove_states
from backends.mlx.heads.weights import (
    Apply,
    LoadedHead,
    embedding_of,
    filled,
    output_bytes,
    output_of,
    prediction_names,
    read_weights,
    require_room,
    with_converted_norms,
)
from backends.mlx.model import MlxModel, weights_of

_TEXT_MODELS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    qwen3_5.TextModel: qwen3_5.DecoderLayer,
    qwen3_next.Model: qwen3_next.Qwen3NextDecoderLayer,
}
"""Text parts of models whose next-token layers are known, with the layer of each."""


# The next-token layers of Qwen3.5 and Qwen3-Next, which mlx-lm leaves out.
#
# The graph is that of src/models/qwen35.cpp of llama.cpp (`graph_mtp`) and vLLM's qwen3_5_mtp.py.


class PredictionLayers(nn.Module):
    """Layers over a token's embedding and the state before it; weights are named as published."""

    def __init__(self, arguments: Any, layer: Callable[..., nn.Module]) -> None:
        super().__init__()
        width, epsilon = arguments.hidden_size, arguments.rms_norm_eps
        self.pre_fc_norm_embedding = nn.RMSNorm(width, eps=epsilon)
        self.pre_fc_norm_hidden = nn.RMSNorm(width, eps=epsilon)
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers = [layer(arguments, 0)]
        self.norm = nn.RMSNorm(width, eps=epsilon)

    def __call__(self, embedded: mx.array, states: mx.array, caches: list[Any]) -> mx.array:
        """Both of shape (1, tokens, width); the states after each token, of the same shape."""
        both = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states)]
        hidden = self.fc(mx.concatenate(both, axis=-1))
        mask = create_attention_mask(hidden, caches[0])
        for layer, cache in zip(self.layers, caches, strict=True):
            hidden = layer(hidden, mask, cache)
        return self.norm(hidden)


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionChain:
    """Next-token layers with the embedding and the output layer of the model they draft for."""

    layers: PredictionLayers
    embedding: Apply
    output: Apply

    def make_cache(self) -> list[Any]:
        return [KVCache() for _ in self.layers.layers]

    def encode(self, rows: mx.array) -> mx.array:
        return rows.astype(self.layers.norm.weight.dtype)

    def __call__(
        self, tokens: mx.array, rows: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        embedded = self.embedding(tokens)
        states = self.layers(embedded.astype(rows.dtype)[None], rows[None], cache)[0]
        return self.output(states.astype(embedded.dtype)), states


def text_of(model: nn.Module) -> Any:
    text = getattr(model, "language_model", model)
    if type(text) not in _TEXT_MODELS:
        name = type(model).__module__.rpartition(".")[2]
        raise DraftUnavailableError(
            "its next-token layers cannot draft", f"those of {name} are not known on MLX"
        )
    return text


def empty_layers(text: Any, *, has_experts: bool) -> PredictionLayers:
    changes: dict[str, Any] = {"full_attention_interval": 1}
    if not has_experts:
        changes["num_experts"] = 0
    elif isinstance(text, qwen3_next.Model):  # every one of them
        changes |= {"mlp_only_layers": [], "decoder_sparse_step": 1}
    arguments = dataclasses.replace(text.args, **changes)
    return PredictionLayers(arguments, _TEXT_MODELS[type(text)])


_LAYER = re.compile(r"layers\.(\d{1,4})\.")


def load_prediction(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    assert target.module is not None, "the model is closed"
    text = text_of(target.module)
    stored = prediction_names(folder.head.tensors, is_alone=folder.drafter.is_alone)
    weights = with_converted_norms(read_weights(folder, stored))
    count = len({match[1] for name in weights if (match := _LAYER.match(name))})
    if count != 1:
        raise DraftUnavailableError(
            "its next-token layers are not known", f"there are {count}, and MLX runs one"
        )
    has_experts = any(".switch_mlp." in name for name in weights)
    layers = empty_layers(text, has_experts=has_experts)
    chain = PredictionChain(filled(layers, weights), embedding_of(text), output_of(text))
    n_vocab = target.info.n_vocab

    def opened(context: MlxContext) -> MlxChainContext:
        """A context of layers that read what the output layer of the model reads.

        The first token has an entry too, after a state of zeros, as in llama.cpp.
        """
        caches = chain.make_cache()
        chain(mx.array([0]), chain.encode(mx.zeros((1, layers.norm.weight.size))), caches)
        per_token = bytes_per_token(caches)  # by a pass of which only shapes are found out
        require_room(context.n_ctx, per_token)
        states = add_final_states(context)
        return MlxChainContext(
            chain, context, states, n_vocab=n_vocab, kv_bytes_per_token=per_token
        )

    return LoadedHead(layers, opened, output_bytes(text))


_LOAD: dict[TrainedKind, Callable[[HeadFolder, MlxModel], LoadedHead]] = {
    TrainedKind.ASSISTANT: load_assistant,
    TrainedKind.DFLASH: load_dflash,
    TrainedKind.DSPARK: load_dflash,
    TrainedKind.EAGLE3: load_eagle3,
    TrainedKind.NEXT_TOKEN_LAYERS: load_prediction,
}


def load_head(path: Path, target: MlxModel, context: MlxContext) -> "MlxHead | MlxLastState":
    """Load a head for a model.

    path: the head's folder, or the model's own. context: of the model, which the head reads.
    """
    folder = checked_head_folder(path, target.folder)
    if folder.drafter.kind is TrainedKind.LAST_STATE:
        return load_last_state(folder, target, context)
    with loading(path):
        return MlxHead(folder, _LOAD[folder.drafter.kind](folder, target), target, context)


class MlxHead(LoadedLayers):
    def __init__(
        self, folder: HeadFolder, loaded: LoadedHead, target: MlxModel, context: MlxContext
    ) -> None:
        self._loaded: LoadedHead | None = loaded
        drafter = folder.drafter
        shared_bytes = loaded.shared_bytes if drafter.is_alone else 0
        info = head_info(
            target.info,
            path=folder.head.path,
            name=folder.head.path.name,
            architecture=str(folder.head.settings.values.get("model_type", "unknown")),
            quantization="head",
            parameters=get_total_parameters(loaded.weights),
            weight_bytes=sum(array.nbytes for _, array in weights_of(loaded.weights)),
            bytes_read_per_token=drafter.draw_bytes + shared_bytes,
            n_layers=drafter.layers,
            variant=drafter.kind.variant,
        )
        super().__init__(target, context, info)
        self._contexts = WeakValueDictionary()  # who drops one has closed it

    def open_beside(self, context: Context) -> Context:
        assert self._loaded is not None, "the head is closed"
        assert isinstance(context, MlxContext)
        with loading(self.info.path):  # finding out shapes runs the model's layers, as views
            opened = self._loaded.open(context)
        self._contexts[id(opened)] = opened
        context.close_with(opened)
        return opened

    def close(self) -> None:
        super().close()
        if self._loaded is not None:
            self._loaded = None
            mx.clear_cache()


# Heads that read the last state of a model.


def load_last_state(folder: HeadFolder, target: MlxModel, context: MlxContext) -> "MlxLastState":
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
