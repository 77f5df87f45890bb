"""Next-token layers of a model (MTP): DeepSeek-V3 (arXiv 2412.19437), section 2.2."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import mlx.core as mx

from backends.base import DraftUnavailableError
from backends.files.head_folders.head_folder import HeadFolder
from backends.mlx.caches.layer_caches import bytes_per_token
from backends.mlx.heads.cache_room import require_room
from backends.mlx.heads.chain_context import MlxChainContext
from backends.mlx.heads.loaded_head import LoadedHead
from backends.mlx.heads.prediction.prediction_layers import (
    PredictionChain,
    PredictionLayers,
    empty_layers,
    text_of,
)
from backends.mlx.heads.prediction.prediction_weights import (
    Weights,
    layer_count,
    prediction_names,
    read_weights,
    with_converted_norms,
)
from backends.mlx.heads.prediction.stored_quantization import quantize_as_stored
from backends.mlx.heads.taps import add_final_states, remove_states
from backends.mlx.loading.folder_checks import require_memory
from backends.mlx.mlx_context import MlxContext
from backends.mlx.mlx_model import MlxModel, weights_of

_SHOWN = 3
"""Names in a refusal."""


def load_prediction(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    """Load next-token layers from a model's folder, or from one of their own.

    Raises:
        DraftUnavailableError: those of this architecture, or of this layout, are not known.
        OutOfMemoryError: the weights are larger than free memory.
        ValueError: the weights do not fit together, in words.
    """
    assert target.module is not None, "the model is closed"
    text = text_of(target.module)
    stored = prediction_names(folder.weights, is_alone=folder.drafter.is_alone)
    require_memory(folder.path, sum(folder.weights[name].bytes for name in stored.values()))
    weights = with_converted_norms(read_weights(stored, folder.files))
    if (count := layer_count(weights)) != 1:
        raise DraftUnavailableError(
            "its next-token layers are not known", f"there are {count}, and MLX runs one"
        )
    has_experts = any(".switch_mlp." in name for name in weights)
    layers = empty_layers(text, layer_count(weights), has_experts=has_experts)
    quantize_as_stored(layers, weights)
    _require_layout(layers, weights)
    layers.load_weights(list(weights.items()))
    layers.eval()
    mx.eval(layers.parameters())
    chain = PredictionChain(layers, text)
    n_vocab = target.info.n_vocab
    output = weights_of(chain.output_layer)
    return LoadedHead(
        layers,
        lambda context: open_chain(chain, context, n_vocab),
        shared_bytes=sum(array.nbytes for _, array in output),
    )


def open_chain(chain: PredictionChain, context: MlxContext, n_vocab: int) -> MlxChainContext:
    """A context of layers that read what the output layer of a model reads.

    The first token has an entry too, after a state of zeros, as in llama.cpp.

    Raises:
        OutOfMemoryError: its cache does not fit in free memory.
        DraftUnavailableError: what the output layer reads cannot be had.
    """
    per_token = _bytes_per_token(chain)
    require_room(context.n_ctx, per_token)
    states = add_final_states(context)
    return MlxChainContext(
        chain,
        states,
        n_vocab=n_vocab,
        n_ctx=context.n_ctx,
        n_chunk=context.n_chunk,
        kv_bytes_per_token=per_token,
        on_close=lambda: remove_states(context, states),
    )


def _bytes_per_token(chain: PredictionChain) -> int:
    """Bytes of the keys and values of a token: by a pass of which only shapes are found out."""
    caches = chain.make_cache()
    chain(mx.array([0]), chain.encode(mx.zeros((1, chain.layers.norm.weight.size))), caches)
    return bytes_per_token(caches)


def _require_layout(layers: PredictionLayers, weights: Weights) -> None:
    """Refuse weights of other names than the layers have, saying which were found."""
    wanted = {name for name, _ in weights_of(layers)}
    unknown, missing = sorted(weights.keys() - wanted), sorted(wanted - weights.keys())
    if unknown or missing:
        parts = [
            f"{word} {', '.join(names[:_SHOWN])}"
            for word, names in (("they have", unknown), ("they lack", missing))
            if names
        ]
        raise DraftUnavailableError("its next-token layers are not known", "; ".join(parts))
