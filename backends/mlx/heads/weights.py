"""Weights of heads as they are published, loading them, and layers that heads share."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope
from mlx_lm.utils import infer_quant_config
from numpy.typing import NDArray

from backends.base import Context, DraftUnavailableError, OutOfMemoryError
from backends.files.head_folders.head_folder import HeadFolder
from backends.files.head_folders.shapes import MAP, AttentionShape, HeadLayout, Rotary
from backends.hardware.host import available_memory
from backends.mlx.context import MlxContext
from backends.mlx.folder_checks import require_memory
from backends.mlx.model import weights_of


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """What a loader of one kind of head returns.

    weights: its own, without those it shares with its model. open: an empty context beside one of
    the model; may raise OutOfMemoryError, or DraftUnavailableError if it cannot read the model.
    shared_bytes: of the model's weights that are read to draft a token, such as its output layer.
    """

    weights: nn.Module
    open: Callable[[MlxContext], Context]
    shared_bytes: int = 0


def require_room(n_ctx: int, bytes_per_token: int) -> None:
    needed, free = n_ctx * bytes_per_token, available_memory()
    if needed > free:
        raise OutOfMemoryError(
            "cannot open a context for the head",
            f"its cache needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
            "Use a smaller --ctx, or free some memory.",
        )


# Weights of next-token layers as they are published, under the names that mlx-lm has for layers.
#
# They come in a folder of their own (mlx-community/Qwen3.8-27B-MTP-4bit: `fc.weight`, `layers.0.…`)
# or with their model (`mtp.fc.weight`, or below `language_model.`), in any of the weight files.


Weights = dict[str, mx.array]

_MARK = "mtp."
_EXPERT = re.compile(r"(.+\.mlp)\.experts\.(\d{1,4})\.((?:gate|up|down)_proj)\.(\w+)")

RAW_BELOW, CONVERTED_ABOVE = 0.5, 0.75
"""Means of the norms around a layer's attention: as trained 0.04 to 0.39 over published models of
Qwen3.5 to 3.8, converted 0.87 to 1.21 (tests of youssofal/MTPLX, 2026-08; not measured here)."""

_TELLING = (".input_layernorm.weight", ".post_attention_layernorm.weight")


def prediction_names(names: Iterable[str], *, is_alone: bool) -> dict[str, str]:
    """Stored names of the weights of next-token layers, by name in them.

    is_alone: whether their folder has nothing else, so that all names are theirs.
    """
    found: dict[str, str] = {}
    for name in names:
        _, mark, rest = f".{name}".rpartition(f".{_MARK}")
        if mark or is_alone:
            found[rest if mark else name] = name
    return found


def read_weights(folder: HeadFolder, stored: Mapping[str, str]) -> Weights:
    """Lazy arrays by name, if they fit in free memory. stored: their names in the files."""
    head = folder.head
    require_memory(head.path, sum(head.tensors[name].bytes for name in stored.values()))
    weights: Weights = {}
    for file in {head.files[name] for name in stored.values()}:
        held = cast("Weights", mx.load(str(file)))
        weights |= {name: held[place] for name, place in stored.items() if place in held}
    return with_joined_experts(weights)


def with_joined_experts(weights: Weights) -> Weights:
    """Experts as mlx-lm has them: one array for all, gate and up apart."""
    found: Weights = {}
    single: dict[str, dict[int, mx.array]] = {}
    for name, array in weights.items():
        base, mark, part = name.partition(".mlp.experts.")
        place = f"{base}.mlp.switch_mlp"
        if match := _EXPERT.fullmatch(name):
            joined = f"{match[1]}.switch_mlp.{match[3]}.{match[4]}"
            single.setdefault(joined, {})[int(match[2])] = array
        elif mark and part == "gate_up_proj" and array.ndim == 3:
            gate, up = mx.split(array, 2, axis=-2)
            found |= {f"{place}.gate_proj.weight": gate, f"{place}.up_proj.weight": up}
        elif mark and part == "down_proj":
            found[f"{place}.down_proj.weight"] = array
        else:
            found[name] = array
    for name, experts in single.items():
        if sorted(experts) != list(range(len(experts))):
            raise ValueError(f"{name[:64]} lacks experts")
        found[name] = mx.stack([experts[number] for number in range(len(experts))])
    return found


def with_converted_norms(weights: Weights) -> Weights:
    """Norms that multiply by their weights: trained ones multiply by 1 more than these.

    mlx-lm adds the 1 when it converts a model, but leaves next-token layers out, so that both kinds
    are published. The norms of the inputs tell nothing: they are small either way
    (jundot/omlx#3750).
    """
    means = [
        cast("float", mx.mean(array.astype(mx.float32)).item())
        for name, array in weights.items()
        if name.endswith(_TELLING)
    ]
    if not means:
        raise ValueError("its next-token layers lack norms")
    if min(means) > CONVERTED_ABOVE:
        return weights
    if max(means) >= RAW_BELOW:
        shown = ", ".join(f"{mean:.2f}" for mean in means)
        raise ValueError(f"its norms are neither as trained nor converted (means {shown})")
    return {
        name: array + 1.0 if array.ndim == 1 and name.endswith(".weight") else array
        for name, array in weights.items()
    }


Layers = TypeVar("Layers", bound=nn.Module)


def filled(layers: Layers, weights: Weights) -> Layers:
    """Layers with their weights in memory, quantized as they are stored.

    Raises:
        ValueError: the weights do not fit the layers, in words.
    """

    def settings(name: str, part: nn.Module) -> bool | dict[str, Any]:
        if f"{name}.scales" not in weights or not hasattr(part, "to_quantized"):
            return False
        return cast("dict[str, Any]", infer_quant_config(name, part, dict(weights)))

    nn.quantize(layers, class_predicate=settings)
    layers.eval()
    layers.load_weights(list(weights.items()))
    mx.eval(layers.parameters())
    return layers


def with_weights(layers: Layers, folder: HeadFolder) -> Layers:
    assert folder.layout is not None, "it was checked"
    stored = {common: name for common, name in folder.layout.names.items() if common != MAP}
    return filled(layers, read_weights(folder, stored))


def dtype_of(layers: nn.Module) -> mx.Dtype:
    return layers["norm"]["weight"].dtype


Apply = Callable[[mx.array], mx.array]
"""A method and no module: as an attribute of a head's, a module would count as its own."""

_EMBEDDING, _OUTPUT = "embed_tokens", "lm_head"


def embedding_of(model: nn.Module) -> Apply:
    """A model's embedding of tokens as it is stored, (n,) to (n, width): some models scale it."""
    embedding = _named(model, _EMBEDDING)
    if embedding is None:
        raise DraftUnavailableError(
            "a head cannot read this model", f"{type(model).__module__} has no {_EMBEDDING}"
        )
    return embedding.__call__


def output_of(model: nn.Module) -> Apply:
    """A model's output layer, (n, width) to (n, n_vocab): its embedding if it has no other."""
    output = _named(model, _OUTPUT)
    if output is not None:
        return output.__call__
    embedding_of(model)
    return _named(model, _EMBEDDING).as_linear


def output_bytes(model: nn.Module) -> int:
    """Size of the output layer that a head borrows, which it reads for each token or block."""
    output = _named(model, _OUTPUT)
    layer = _named(model, _EMBEDDING) if output is None else output
    return sum(array.nbytes for _, array in weights_of(layer))


def _named(model: nn.Module, name: str) -> Any:
    """The part of a model of this name, None if there is not exactly one."""
    parts = cast("list[tuple[str, Any]]", model.named_modules())
    found = [part for path, part in parts if path.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else None


class VocabularyLayers(nn.Module):
    """The embedding and the output layer of a head, or what its model lends in their place."""

    def __init__(
        self, layout: HeadLayout, drafted: NDArray[np.int64] | None, target: nn.Module
    ) -> None:
        """drafted: the model's token of each of the head's, None if they are the same."""
        super().__init__()
        self._n_vocab, self._drafted = layout.n_vocab, drafted
        self._lent_embedding: Apply | None = None if layout.has_embeddings else embedding_of(target)
        is_lent = not layout.has_output and not layout.ties_output
        self._lent_output: Apply | None = output_of(target) if is_lent else None
        if layout.has_embeddings:
            self.embed_tokens = nn.Embedding(layout.n_vocab, layout.width)
        if layout.has_output:
            self.lm_head = nn.Linear(layout.width, layout.n_drafted, bias=False)

    def embedding(self, tokens: mx.array) -> mx.array:
        return (self._lent_embedding or self.embed_tokens)(tokens)

    def output(self, states: mx.array) -> mx.array:
        """Scores over the head's tokens, (n, drafted)."""
        if self._lent_output is not None:
            return self._lent_output(states)
        return self.lm_head(states) if "lm_head" in self else self.embed_tokens.as_linear(states)

    def over_all_tokens(self, rows: mx.array, fill: float = -mx.inf) -> mx.array:
        """Rows over the head's tokens as float32 over those of its model, (n, n_vocab).

        fill: of the others.
        """
        rows = rows.astype(mx.float32)
        if self._drafted is None:
            return rows
        full = mx.full((len(rows), self._n_vocab), fill, dtype=mx.float32)
        places = mx.broadcast_to(mx.array(self._drafted.astype(np.int32)), rows.shape)
        return mx.put_along_axis(full, places, rows, axis=-1)


Entries = tuple[mx.array, mx.array]
"""Keys and values of tokens, each of shape (1, kv_heads, tokens, head_size)."""


class HeadAttention(nn.Module):
    """Attention with keys and values made apart from its queries; rows are (tokens, inputs)."""

    def __init__(self, shape: AttentionShape, rotary: Rotary, width: int, epsilon: float) -> None:
        """width: of the rows it gives. epsilon: of the norms of each head's queries and keys."""
        super().__init__()
        self._shape = shape
        inputs, biased = shape.inputs, shape.biased
        queries, entries = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(inputs, queries, bias="q_proj" in biased)
        self.k_proj = nn.Linear(inputs, entries, bias="k_proj" in biased)
        self.v_proj = nn.Linear(inputs, entries, bias="v_proj" in biased)
        self.o_proj = nn.Linear(queries, width, bias="o_proj" in biased)
        if shape.has_norms:
            self.q_norm = nn.RMSNorm(shape.head_size, eps=epsilon)
            self.k_norm = nn.RMSNorm(shape.head_size, eps=epsilon)
        if shape.has_sinks:
            self.sinks = mx.zeros((shape.heads,))
        scaling = None if rotary.scaling is None else dict(rotary.scaling)
        self._rotate: Any = initialize_rope(
            rotary.size, rotary.base, rotary.is_interleaved, scaling
        )

    def queries(self, rows: mx.array, position: int) -> mx.array:
        """Queries of tokens from a position on, shape (1, heads, tokens, head_size)."""
        queries = self._by_head(self.q_proj(rows), self._shape.heads)
        if self._shape.has_norms:
            queries = self.q_norm(queries)
        return self._rotate(queries, offset=position)

    def entries(self, rows: mx.array, position: int) -> Entries:
        keys = self._by_head(self.k_proj(rows), self._shape.kv_heads)
        if self._shape.has_norms:
            keys = self.k_norm(keys)
        values = self._by_head(self.v_proj(rows), self._shape.kv_heads)
        return self._rotate(keys, offset=position), values

    def attend(self, queries: mx.array, entries: Entries, mask: mx.array | str | None) -> mx.array:
        """What queries find in entries, shape (tokens, width)."""
        found = mx.fast.scaled_dot_product_attention(
            queries,
            *entries,
            scale=self._shape.head_size**-0.5,
            mask=mask,
            sinks=self.sinks.astype(queries.dtype) if self._shape.has_sinks else None,
        )
        return self.o_proj(found[0].swapaxes(0, 1).reshape(queries.shape[2], -1))

    def _by_head(self, rows: mx.array, heads: int) -> mx.array:
        return rows.reshape(1, len(rows), heads, self._shape.head_size).swapaxes(1, 2)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, rows: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(rows), self.up_proj(rows)))
