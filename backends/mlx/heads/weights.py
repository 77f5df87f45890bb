"""Weights of heads as they are published, and loading them into layers."""

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
from mlx_lm.utils import infer_quant_config
from numpy.typing import NDArray

from backends.base import Context, OutOfMemoryError
from backends.files.head_folders.head_folder import HeadFolder
from backends.files.head_folders.shapes import MAP
from backends.hardware.host import available_memory
from backends.mlx.context import MlxContext
from backends.mlx.folder_checks import require_memory


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


def quantize_as_stored(layers: nn.Module, weights: Weights) -> None:
    """Make those parts quantized whose stored weights are; others stay as they are."""

    def settings(name: str, part: nn.Module) -> bool | dict[str, Any]:
        if f"{name}.scales" not in weights or not hasattr(part, "to_quantized"):
            return False
        return cast("dict[str, Any]", infer_quant_config(name, part, dict(weights)))

    nn.quantize(layers, class_predicate=settings)


def filled(layers: Layers, weights: Weights) -> Layers:
    """Layers with their weights in memory, quantized as they are stored.

    Raises:
        ValueError: the weights do not fit the layers, in words.
    """
    quantize_as_stored(layers, weights)
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


def over_all_tokens(
    rows: mx.array, drafted: NDArray[np.int64] | None, n_vocab: int, fill: float
) -> mx.array:
    """Rows over a head's tokens, (n, drafted), as float32 over those of its model, (n, n_vocab).

    drafted: the model's token of each of the head's, None if they are the same. fill: of others.
    """
    rows = rows.astype(mx.float32)
    if drafted is None:
        return rows
    full = mx.full((len(rows), n_vocab), fill, dtype=mx.float32)
    places = mx.broadcast_to(mx.array(drafted.astype(np.int32)), rows.shape)
    return mx.put_along_axis(full, places, rows, axis=-1)
