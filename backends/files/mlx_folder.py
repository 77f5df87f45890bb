"""Settings, tensors and running state of an MLX model folder, read without an engine."""

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard, cast

from backends.base import ModelError
from backends.base.safe_files import open_regular
from backends.files.gguf_header import reading

# Reading the header of an untrusted safetensors file without an engine.
#
# Format: eight bytes of length, little-endian, then a JSON object of the tensors, then their
# data.

MAX_HEADER = 1 << 21
"""Most bytes of a header; models have about 100 per tensor."""

_MAX_DIMENSIONS = 8
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2,
          "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
          "C64": 8}  # fmt: skip
"""Bytes of a number by type; lengths of other types are not checked."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A stored tensor. dtype: as the format names it. offset: of its data in the file."""

    bytes: int
    dtype: str
    shape: tuple[int, ...]
    offset: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Tensors of a file by name."""
    with reading(path), open_regular(path) as file:
        size = path.stat().st_size
        length = struct.unpack("<Q", file.read(8))[0]
        if length > min(MAX_HEADER, size - 8):
            raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
        entries = cast("dict[str, object]", header)
        entries.pop("__metadata__", None)
        start = 8 + length
        return {name: _checked(name, one, start, size - start) for name, one in entries.items()}


def _checked(name: str, entry: object, begin: int, data_bytes: int) -> StoredTensor:
    shown = repr(name[:64])
    facts = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    offsets, shape = facts.get("data_offsets"), facts.get("shape")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {shown} has no place")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"tensor {shown} has no shape")
    start, end = offsets
    if not start <= end <= data_bytes:
        raise ValueError(f"tensor {shown} lies past the end of the file")
    dtype = str(facts.get("dtype"))
    size = _SIZES.get(dtype)
    if size is not None and size * math.prod(shape) != end - start:
        raise ValueError(f"tensor {shown} has {end - start:,} bytes, which is not its shape")
    return StoredTensor(end - start, dtype, tuple(shape), begin + start)


def _are_counts(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list):
        return False
    return all(type(item) is int and item >= 0 for item in cast("list[object]", value))


WEIGHT_FILES = "model*.safetensors"
"""Weight files that mlx-lm loads; others in the folder are for other programs."""

REMEDY = "Download or convert it again."

_CONFIG = "config.json"
_MAX_CONFIG = 1 << 20
_MAX_SETTINGS = 16 << 20
"""The longest are indexes of thousands of experts and lists of added tokens."""

_MAX_COUNT = 1 << 32
_SHAPING = re.compile(r"embed|wte|norm|proj|qkv")
"""Parts of names of tensors whose number type determines what the model computes in."""

_UNREAD = "mtp"
"""Part of the names of next-token layers, which mlx-lm drops: a head reads them by itself."""

_HALVES = ({"F16"}, {"BF16"})

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_ACTIVE = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_k",
    "moe_top_k",
)
"""Names that architectures of mlx-lm have for the number of experts, and of those a token uses."""


@dataclass(frozen=True, slots=True)
class MlxFolder:
    """Settings of a language model; of a multimodal model those of its text part."""

    config: dict[str, Any]
    weight_bytes: int
    written: dict[str, Any] = field(default_factory=dict[str, Any])
    """All settings as in the file, nested."""
    number_bytes: int = 2
    """Bytes of a number in its computations and its cache."""
    read_bytes: int = 0
    """Weights that a plain token reads; 0 if unknown."""

    def count(self, key: str, default: int = 0) -> int:
        """Non-negative integer of a setting, the default if it is missing.

        Raises:
            ModelError: it is something else, or far too large.
        """
        value = self.config.get(key)
        if value is None:
            return default
        if type(value) is not int or not 0 <= value < _MAX_COUNT:
            raise ModelError(f"its {_CONFIG} is damaged", f"{key} is {str(value)[:40]!r}")
        return value

    @property
    def experts(self) -> int:
        return experts_of(self.count)[0]

    @property
    def active_experts(self) -> int:
        return experts_of(self.count)[1]

    def with_active_experts(self, count: int) -> "MlxFolder":
        """The folder of a view that uses so many experts per token."""
        changed = {name: count for name in _ACTIVE if self.config.get(name)}
        return replace(self, config={**self.config, **changed})

    def read_per_token(self, tensors: Sequence[tuple[str, Sequence[int], int]]) -> int:
        """Bytes that a plain token reads of tensors, given by name, shape and bytes.

        All but an embedding that is only looked up, and experts that are not active.
        """
        has_head = any("lm_head" in name for name, _, _ in tensors)
        experts, active = self.experts, self.active_experts
        read = 0
        for name, shape, size in tensors:
            if has_head and "embed_tokens" in name:
                continue
            are_experts = active > 0 and len(shape) >= 3 and shape[0] == experts
            read += size * active // experts if are_experts else size
        return read


def experts_of(count: Callable[[str], int]) -> tuple[int, int]:
    """How many experts there are, and how many a token uses. count: the number in a setting."""
    experts, active = (max(count(name) for name in names) for names in (_EXPERTS, _ACTIVE))
    return experts, active if experts else 0


def is_mlx_folder(path: Path) -> bool:
    """Whether a folder has the minimum of an MLX model: settings and weights.

    Not one that cannot be read, such as lost+found.
    """
    with suppress(OSError):
        return (path / _CONFIG).is_file() and any(path.glob("*.safetensors"))
    return False


def looks_like_mlx(path: Path) -> bool:
    """Whether a folder is meant as an MLX model, even if files are missing."""
    is_begun = (path / _CONFIG).is_file() or any(path.glob("*.safetensors*"))
    return is_begun and not any(path.glob("*.gguf"))


def read_mlx_folder(path: Path) -> MlxFolder:
    """Read the settings of a model and the sizes of its tensors."""
    file = path / _CONFIG
    if not file.is_file():
        raise ModelError(f"cannot read {file}", "it is missing", REMEDY)
    written = read_settings(file, _MAX_CONFIG)
    text_part = written.get("text_config")
    settings = (
        written | cast("dict[str, Any]", text_part) if isinstance(text_part, dict) else written
    )
    weights = sorted(path.glob(WEIGHT_FILES))
    if not weights:
        raise ModelError(f"there are no weights in {path}", "model.safetensors is missing", REMEDY)
    stored = [entry for weight in weights for entry in stored_tensors(weight).items()]
    tensors = [(name, tensor) for name, tensor in stored if _UNREAD not in name.split(".")]
    loaded = sum(tensor.bytes for _, tensor in tensors)
    folder = MlxFolder(settings, loaded, written, _number_bytes(tensors))
    stored_sizes = [(name, tensor.shape, tensor.bytes) for name, tensor in tensors]
    return replace(folder, read_bytes=folder.read_per_token(stored_sizes))


def read_settings(file: Path, most_bytes: int = _MAX_SETTINGS) -> dict[str, Any]:
    """Object in a JSON file beside a model's weights, {} if there is no file."""
    size = 0
    try:
        size = file.stat().st_size
        value = json.loads(file.read_bytes()) if size <= most_bytes else None
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"cannot read {file}", error.strerror or str(error), REMEDY) from error
    except (ValueError, RecursionError) as error:
        why = str(error) if size else "it is empty: a download or a conversion was interrupted"
        raise ModelError(f"{file} is damaged", why, REMEDY) from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} is damaged", "it holds no settings", REMEDY)
    return cast("dict[str, Any]", value)


def _number_bytes(tensors: Iterable[tuple[str, StoredTensor]]) -> int:
    """MLX computes in float32 if any operand is float32, or if both half types are mixed."""
    kinds = {tensor.dtype for name, tensor in tensors if _SHAPING.search(name)}
    return 2 if kinds & {"F16", "BF16", "F32"} in _HALVES else 4


# Layers of an MLX folder that keep a running state, and its size in MLX.
#
# Sizes and settings are those of mlx-lm 0.32.2 (models/qwen3_5.py, qwen3_next.py, lfm2.py,
# nemotron_h.py, granitemoehybrid.py, falcon_h1.py, mamba2.py, rwkv7.py). Scans are held in 32-bit
# floats whatever the weights are, but for RWKV's; the rest has the type of the weights.

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
    """How many layers of a model keep what; one layer may keep both."""
    count = folder.count("num_hidden_layers")
    if folder.config.get("model_type") == "falcon_h1":
        return LayerCounts(count, 0, count)
    kinds = _kinds(folder, count)
    wanted = (_FULL, _WINDOW, _STATE)
    return LayerCounts(*(sum(kind in names for kind in kinds) for names in wanted))


def state_bytes(folder: MlxFolder) -> int:
    """Bytes of one running state of a model; 0 without one, and for architectures unknown here."""
    numbers, floats = _numbers(folder)
    layer = folder.number_bytes * numbers + _FLOAT * floats
    return count_layers(folder).state * layer


def _kinds(folder: MlxFolder, count: int) -> tuple[str, ...]:
    if count > _MOST_LAYERS:
        raise ModelError(f"its {_CONFIG} is damaged", "it has too many layers")
    if folder.config.get("model_type") in ("mamba2", "rwkv7"):
        return ("mamba",) * count
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        if listed := _listed(folder, key):
            return listed
    if folder.count("linear_num_value_heads"):
        interval = max(folder.count("full_attention_interval", _USUAL_INTERVAL), 1)
        attends = [(layer + 1) % interval == 0 for layer in range(count)]
    else:
        named: object = folder.config.get("full_attn_idxs")  # where there is no list, all are
        with_attention = cast("list[object]", named) if isinstance(named, list) else range(count)
        attends = [layer in with_attention for layer in range(count)]
    return tuple("full_attention" if attending else "conv" for attending in attends)


def _listed(folder: MlxFolder, key: str) -> tuple[str, ...]:
    value: object = folder.config.get(key) or []
    if not isinstance(value, str | list):
        raise ModelError(f"its {_CONFIG} is damaged", f"{key} is no list of layers")
    listed = cast("str | list[object]", value)
    if len(listed) > _MOST_LAYERS:
        raise ModelError(f"its {_CONFIG} is damaged", "it has too many layers")
    return tuple(map(str, listed))


def _numbers(folder: MlxFolder) -> tuple[int, int]:
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
