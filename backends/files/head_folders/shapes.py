"""Shapes of a head: its tensors, attention, vocabularies and rotation of positions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.files.head_folders.stored_head import Settings
from backends.files.safetensors_header import StoredTensor

_FLOATS = frozenset({"F32", "F16", "BF16"})
_PACKED = "U32"
_WORD_BITS = 32
_BITS = frozenset({2, 3, 4, 5, 6, 8})


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors by common name. group: weights that share a scale, where they are quantized.

    What a layout cannot have raises a ValueError in words.
    """

    by_name: Mapping[str, StoredTensor]
    group: int = 64

    def has(self, module: str) -> bool:
        return f"{module}.weight" in self.by_name

    def matrix(self, module: str) -> tuple[int, int]:
        """Outputs and inputs of a module's weights."""
        weight = self._tensor(f"{module}.weight", 2)
        outputs, columns = weight.shape
        if f"{module}.scales" not in self.by_name:
            _require_float(f"{module}.weight", weight)
            return outputs, columns
        scales = self._tensor(f"{module}.scales", 2)
        biases = self._tensor(f"{module}.biases", 2)
        inputs = scales.shape[1] * self.group
        bits = _WORD_BITS * columns // max(inputs, 1)
        is_whole = scales.shape[0] == outputs and biases.shape == scales.shape
        if weight.dtype != _PACKED or bits not in _BITS or bits * inputs != _WORD_BITS * columns:
            is_whole = False
        if not is_whole or scales.dtype not in _FLOATS or biases.dtype != scales.dtype:
            raise ValueError(f"{module} is quantized in a way that is not known")
        return outputs, inputs

    def require(self, module: str, outputs: int, inputs: int) -> None:
        """Require a module of this shape; a bias, if it has one, must fit."""
        found = self.matrix(module)
        if found != (outputs, inputs):
            raise ValueError(
                f"{module} is {found[0]:,} × {found[1]:,}, not {outputs:,} × {inputs:,}"
            )
        if f"{module}.bias" in self.by_name:
            self.vector(f"{module}.bias", outputs)

    def vector(self, name: str, size: int = 0) -> int:
        """Numbers of a vector, which must be this many if a size is given."""
        tensor = self._tensor(name, 1)
        _require_float(name, tensor)
        if size and tensor.shape[0] != size:
            raise ValueError(f"{name} has {tensor.shape[0]:,} numbers, not {size:,}")
        return tensor.shape[0]

    def require_block(self, name: str, shape: tuple[int, ...]) -> None:
        """Require numbers of this shape."""
        tensor = self._tensor(name, len(shape))
        _require_float(name, tensor)
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}, not {list(shape)}")

    def refuse_others(self, known: Iterable[str]) -> None:
        """Refuse a tensor that is not known: without it the head would draft wrongly."""
        if others := self.by_name.keys() - set(known):
            raise ValueError(f"it has a tensor {min(others)[:64]}, which is not known")

    def _tensor(self, name: str, dimensions: int) -> StoredTensor:
        if name not in self.by_name:
            raise ValueError(f"it lacks {name}")
        tensor = self.by_name[name]
        if len(tensor.shape) != dimensions or 0 in tensor.shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}")
        return tensor


def _require_float(name: str, tensor: StoredTensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise ValueError(f"{name} is of type {tensor.dtype[:20]}, which cannot be run")


def parts_of(*modules: str) -> list[str]:
    return [f"{module}.{part}" for module in modules for part in _PARTS]


_PARTS = ("weight", "bias", "scales", "biases")


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_NORMS = ("q_norm", "k_norm")
SINKS = "sinks"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads of queries, of keys and values, and numbers of each.

    inputs: of its projections. has_norms: of each head's queries and keys. has_sinks: a score of
    each head that no token gets. biased: projections with a bias.
    """

    heads: int
    kv_heads: int
    head_size: int
    inputs: int
    has_norms: bool = False
    has_sinks: bool = False
    biased: tuple[str, ...] = ()

    @property
    def numbers_per_token(self) -> int:
        return 2 * self.kv_heads * self.head_size


def attention_shape(
    tensors: Tensors, module: str, settings: Settings, inputs: int, width: int
) -> AttentionShape:
    """The shape of an attention module that reads inputs and gives width numbers."""
    has_norms = tensors.has(f"{module}.q_norm")
    rows = {part: tensors.matrix(f"{module}.{part}")[0] for part in PROJECTIONS[:3]}
    size = _head_size(tensors, module, settings, width, has_norms=has_norms)
    if rows["q_proj"] % size or rows["k_proj"] % size:
        raise ValueError(f"{module} has no whole heads of {size:,}")
    heads, kv_heads = rows["q_proj"] // size, rows["k_proj"] // size
    for key, found in (("num_attention_heads", heads), ("num_key_value_heads", kv_heads)):
        if settings.count(key, found) != found:
            raise ValueError(f"{key} is {settings.count(key):,}, and {module} has {found:,}")
    if heads % kv_heads:
        raise ValueError(f"{heads:,} heads of {module} cannot share {kv_heads:,}")
    tensors.require(f"{module}.q_proj", heads * size, inputs)
    tensors.require(f"{module}.k_proj", kv_heads * size, inputs)
    tensors.require(f"{module}.v_proj", kv_heads * size, inputs)
    tensors.require(f"{module}.o_proj", width, heads * size)
    for norm in _NORMS if has_norms else ():
        tensors.vector(f"{module}.{norm}.weight", size)
    has_sinks = f"{module}.{SINKS}" in tensors.by_name
    if has_sinks:
        tensors.vector(f"{module}.{SINKS}", heads)
    biased = tuple(part for part in PROJECTIONS if f"{module}.{part}.bias" in tensors.by_name)
    return AttentionShape(heads, kv_heads, size, inputs, has_norms, has_sinks, biased)


def known_names(module: str) -> list[str]:
    """Names of the tensors that an attention module may have."""
    matrices = parts_of(*(f"{module}.{part}" for part in PROJECTIONS))
    return [*matrices, *(f"{module}.{norm}.weight" for norm in _NORMS), f"{module}.{SINKS}"]


def _head_size(
    tensors: Tensors, module: str, settings: Settings, width: int, *, has_norms: bool
) -> int:
    if has_norms:
        return tensors.vector(f"{module}.q_norm.weight")
    size, heads = settings.count("head_dim"), settings.count("num_attention_heads")
    if not size and heads:
        size = width // heads
    if not size:
        raise ValueError("its config.json does not say how many heads its attention has")
    return size


_PLAIN = frozenset({"", "default", "mrope"})
"""Of a text alone, sections for images (M-RoPE) rotate like none."""

_TRAINED = "original_max_position_embeddings"

_SCALED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("factor",), ()),
    "llama3": (
        ("factor",),
        ("low_freq_factor", "high_freq_factor", _TRAINED),
    ),
    "yarn": (
        ("factor",),
        (
            _TRAINED,
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
        ),
    ),
}
"""Kinds of scaling, with the settings that each needs and those that it may have."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """Numbers of a head that are rotated, the base of their frequencies, and its scaling if any.

    scaling: as in a config.json, with its kind as rope_type. is_interleaved: whether neighbours
    make a pair, and not the halves.
    """

    size: int
    base: float
    scaling: Mapping[str, str | float] | None = None
    is_interleaved: bool = False


def rotary_of(settings: Settings, head_size: int) -> Rotary:
    """The rotation of heads of this size."""
    rope = settings.part("rope_parameters")
    if rope.has("full_attention"):
        rope = rope.part("full_attention")
    base = rope.number("rope_theta", settings.number("rope_theta", 10_000.0))
    share = rope.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1.0))
    size = int(head_size * share)
    if base <= 1.0 or not 0 < size <= head_size or size % 2:
        raise ValueError(f"it rotates {size:,} of {head_size:,} numbers with base {base:g}")
    is_interleaved = not settings.flag("rope_is_neox_style", True)
    scaling = _scaling(rope.under(settings.part("rope_scaling")), settings)
    return Rotary(size, base, scaling, is_interleaved)


def _scaling(rope: Settings, settings: Settings) -> dict[str, str | float] | None:
    kind = rope.text("rope_type") or rope.text("type")
    if kind in _PLAIN:
        return None
    if kind not in _SCALED:
        raise ValueError(f"its positions are scaled by {kind[:40]}, which is not known")
    needed, further = _SCALED[kind]
    names = (*needed, *(name for name in further if rope.has(name)))
    found = {name: rope.number(name, 0.0) for name in names}
    if kind == "llama3":
        found.setdefault(_TRAINED, 8192.0)
    if kind == "yarn":
        found.setdefault(_TRAINED, settings.number("max_position_embeddings", 0.0))
    low, high = found.get("low_freq_factor", 1.0), found.get("high_freq_factor", 4.0)
    if min(found.values()) < 0 or found["factor"] < 1.0 or low in (high, 0):
        raise ValueError(f"its positions are scaled by {kind} in a way that is not known")
    if kind != "linear" and found[_TRAINED] < 1.0:
        raise ValueError(f"its positions are scaled by {kind} from no length")
    return {"rope_type": kind, **found}


MAP = "d2t"
"""Tensor with the distance from each of the head's tokens to the model's."""

_INTEGERS = {"I64": "<i8", "I32": "<i4"}


def drafted_tokens(file: Path, tensor: StoredTensor, n_vocab: int) -> NDArray[np.int64]:
    """The model's token of each of the head's, shape (tokens,), all of them different."""
    kind = _INTEGERS.get(tensor.dtype)
    if kind is None or len(tensor.shape) != 1:
        raise ValueError(f"{MAP} is no list of whole numbers")
    distances = np.fromfile(file, kind, tensor.shape[0], offset=tensor.offset).astype(np.int64)
    if len(distances) != tensor.shape[0]:
        raise ValueError(f"{MAP} is cut short")
    if ((distances < -n_vocab) | (distances > n_vocab)).any():  # their sums would wrap around
        raise ValueError(f"{MAP} leads to tokens that are not among its {n_vocab:,}")
    tokens = distances + np.arange(len(distances))
    if ((tokens < 0) | (tokens >= n_vocab)).any():
        raise ValueError(f"{MAP} leads to tokens that are not among its {n_vocab:,}")
    if len(np.unique(tokens)) != len(tokens):
        raise ValueError(f"{MAP} leads to a token twice")
    return tokens


def vocabularies(
    tensors: Tensors,
    settings: Settings,
    width: int,
    target_width: int,
    *,
    ties_output: bool = False,
) -> tuple[int, int]:
    """Tokens of the model, and those that the head drafts.

    width, target_width: of their hidden states. ties_output: whether its embedding is its output
    layer too.
    """
    n_vocab = settings.count("vocab_size")
    has_embeddings, has_output = tensors.has("embed_tokens"), tensors.has("lm_head")
    if has_embeddings:
        n_vocab = n_vocab or tensors.matrix("embed_tokens")[0]
        tensors.require("embed_tokens", n_vocab, width)
    if not n_vocab:
        raise ValueError("its config.json does not say how many tokens there are (vocab_size)")
    n_drafted = settings.count("draft_vocab_size") or n_vocab
    if has_output:
        tensors.require("lm_head", n_drafted, width)
    listed = tensors.by_name.get(MAP)
    if listed is not None and listed.shape != (n_drafted,):
        raise ValueError(f"it drafts {n_drafted:,} tokens, and {MAP} has {list(listed.shape)}")
    if n_drafted != n_vocab and (listed is None or not has_output):
        what = MAP if listed is None else "lm_head.weight"
        raise ValueError(f"it drafts {n_drafted:,} of {n_vocab:,} tokens and lacks {what}")
    borrows = not has_embeddings or not (has_output or ties_output)
    if borrows and width != target_width:
        raise ValueError(f"its width is {width:,}, and the embeddings that it borrows have another")
    return n_vocab, n_drafted
