"""Weights of next-token layers as they are published, under the names that mlx-lm has for layers.

They come in a folder of their own (mlx-community/Qwen3.8-27B-MTP-4bit: `fc.weight`, `layers.0.…`)
or with their model (`mtp.fc.weight`, or below `language_model.`), in any of the weight files.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import mlx.core as mx

Weights = dict[str, mx.array]

_MARK = "mtp."
_EXPERT = re.compile(r"(.+\.mlp)\.experts\.(\d{1,4})\.((?:gate|up|down)_proj)\.(\w+)")
_LAYER = re.compile(r"layers\.(\d{1,4})\.")

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


def read_weights(stored: Mapping[str, str], files: Mapping[str, Path]) -> Weights:
    """Lazy arrays by name. stored: their names in the files; files: where each is."""
    weights: Weights = {}
    for file in {files[name] for name in stored.values()}:
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


def layer_count(weights: Mapping[str, mx.array]) -> int:
    """Number of layers that weights are of."""
    return len({match[1] for name in weights if (match := _LAYER.match(name))})


def with_converted_norms(weights: Weights) -> Weights:
    """Norms that multiply by their weights: trained ones multiply by 1 more than these.

    mlx-lm adds the 1 when it converts a model, but leaves next-token layers out, so that both kinds
    are published. The norms of the inputs tell nothing: they are small either way
    (jundot/omlx#3750).

    Raises:
        ValueError: the weights are neither of the two.
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
