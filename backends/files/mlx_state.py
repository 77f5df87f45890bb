"""Layers of an MLX folder that keep a running state, and its size in MLX.

Sizes and settings are those of mlx-lm 0.32.2 (models/qwen3_5.py, qwen3_next.py, lfm2.py,
nemotron_h.py, granitemoehybrid.py, falcon_h1.py, mamba2.py, rwkv7.py). Scans are held in 32-bit
floats whatever the weights are, but for RWKV's; the rest has the type of the weights.
"""

from dataclasses import dataclass
from typing import cast

from backends.base import ModelError
from backends.files.mlx_folder import MlxFolder

COPIES = 2
"""Running states that a context holds: the present one and the one before the last pass."""

_FLOAT = 4
_FULL, _WINDOW = frozenset({"full_attention", "attention", "*"}), frozenset({"sliding_attention"})
_STATE = frozenset({"linear_attention", "mamba", "conv", "M"})
_USUAL_INTERVAL = 4
_MOST_LAYERS = 1 << 12


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """Layers with keys and values of every token, with those of a window, and with a state."""

    full: int
    window: int
    state: int


def count_layers(folder: MlxFolder) -> LayerCounts:
    """How many layers of a model keep what; one layer may keep both.

    Raises:
        ModelError: its settings are damaged.
    """
    count = folder.count("num_hidden_layers")
    if folder.config.get("model_type") == "falcon_h1":
        return LayerCounts(count, 0, count)
    kinds = _kinds(folder, count)
    full, window, state = (_counted(kinds, names) for names in (_FULL, _WINDOW, _STATE))
    return LayerCounts(full, window, state)


def state_bytes(folder: MlxFolder) -> int:
    """Bytes of one running state of a model; 0 without one, and for architectures not known here.

    Raises:
        ModelError: its settings are damaged.
    """
    numbers, floats = _numbers(folder)
    layer = folder.number_bytes * numbers + _FLOAT * floats
    return count_layers(folder).state * layer


def _kinds(folder: MlxFolder, count: int) -> tuple[str, ...]:
    """What every layer is, by the settings that its architecture reads."""
    if folder.config.get("model_type") in ("mamba2", "rwkv7"):
        return ("mamba",) * count
    if listed := folder.layer_kinds or _listed(folder, "layers_block_type"):
        return listed
    if pattern := _listed(folder, "hybrid_override_pattern"):
        return pattern
    if folder.count("linear_num_value_heads"):
        interval = max(folder.count("full_attention_interval", _USUAL_INTERVAL), 1)
        attends = [(layer + 1) % interval == 0 for layer in range(count)]
    else:
        with_attention = folder.config.get("full_attn_idxs")
        attends = [_is_named(layer, with_attention) for layer in range(count)]
    return tuple("full_attention" if attending else "conv" for attending in attends)


def _is_named(layer: int, layers: object) -> bool:
    """Whether a layer is in a list; all are where there is none."""
    return not isinstance(layers, list) or layer in cast("list[object]", layers)


def _listed(folder: MlxFolder, key: str) -> tuple[str, ...]:
    """A setting for every layer: a list, or a string of a letter each."""
    value: object = folder.config.get(key) or ()
    if not isinstance(value, str | list):
        return ()
    listed = [*cast("str | list[object]", value)]
    if len(listed) > _MOST_LAYERS:
        raise ModelError("its config.json is damaged", "it has too many layers")
    return tuple(map(str, listed))


def _counted(kinds: tuple[str, ...], names: frozenset[str]) -> int:
    return sum(kind in names for kind in kinds)


def _numbers(folder: MlxFolder) -> tuple[int, int]:
    """Numbers of one layer's state: those of the type of the weights, and 32-bit floats."""
    width = folder.count("hidden_size")
    if heads := folder.count("linear_num_value_heads"):
        keys = folder.count("linear_key_head_dim")
        values = heads * folder.count("linear_value_head_dim")
        row = 2 * folder.count("linear_num_key_heads") * keys + values
        return _back(folder, "linear_conv_kernel_dim") * row, values * keys
    if folder.count("conv_L_cache"):
        return _back(folder, "conv_L_cache") * width, 0
    if folder.config.get("model_type") == "rwkv7":
        return 2 * width + width * folder.count("head_dim"), 0
    for inner, state, groups, kernel in _SCANS:
        values = folder.count(inner[0]) * folder.count(inner[1])
        size = folder.count(state)
        if values and size:
            row = values + 2 * folder.count(groups) * size
            return _back(folder, kernel) * row, values * size
    return 0, 0


_SCANS = (
    (("mamba_num_heads", "mamba_head_dim"), "ssm_state_size", "n_groups", "conv_kernel"),
    (("mamba_n_heads", "mamba_d_head"), "mamba_d_state", "mamba_n_groups", "mamba_d_conv"),
    (("num_heads", "head_dim"), "state_size", "n_groups", "conv_kernel"),
)
"""Settings of a state space model: heads and their size, state size, groups, convolution."""


def _back(folder: MlxFolder, kernel: str) -> int:
    """Tokens that a convolution looks back on."""
    return max(folder.count(kernel) - 1, 0)
