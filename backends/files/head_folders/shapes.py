"""Shapes of a head: its tensors, attention, vocabularies and rotation of positions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.files.head_folders.stored_head import Settings, StoredHead
from backends.files.mlx_folder import StoredTensor

MAP = "d2t"
"""Tensor with the distance from each of the head's tokens to the model's."""

DEFAULT_TAPS = 3
"""Layers of the model that an EAGLE-3 head reads if it does not say which."""

_FLOATS = frozenset({"F32", "F16", "BF16"})
_PACKED = "U32"
_WORD_BITS = 32
_BITS = frozenset({2, 3, 4, 5, 6, 8})


class Tensors:
    """Tensors of a head by common name. What a layout cannot have raises a ValueError in words."""

    def __init__(self, head: StoredHead, common: Callable[[str], str]) -> None:
        """common: gives the common name of a stored tensor, "" for one drafting does without."""
        self.names = head.renamed(common)
        self.by_name = {name: head.tensors[stored] for name, stored in self.names.items()}
        self._group = head.settings.part("quantization").count("group_size", 64)
        """Weights that share a scale, where they are quantized."""
        self._asked_for = {MAP}

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
        inputs = scales.shape[1] * self._group
        bits = _WORD_BITS * columns // max(inputs, 1)
        is_whole = scales.shape[0] == outputs and biases.shape == scales.shape
        if weight.dtype != _PACKED or bits not in _BITS or bits * inputs != _WORD_BITS * columns:
            is_whole = False
        if not is_whole or scales.dtype not in _FLOATS or biases.dtype != scales.dtype:
            raise ValueError(f"{module} is quantized in a way that is not known")
        return outputs, inputs

    def require(self, module: str, outputs: int, inputs: int) -> None:
        found = self.matrix(module)
        if found != (outputs, inputs):
            raise ValueError(
                f"{module} is {found[0]:,} × {found[1]:,}, not {outputs:,} × {inputs:,}"
            )

    def has_bias(self, module: str, outputs: int) -> bool:
        """Whether a module has a bias, which must fit."""
        has_it = f"{module}.bias" in self.by_name
        if has_it:
            self.vector(f"{module}.bias", outputs)
        return has_it

    def vector(self, name: str, size: int = 0) -> int:
        """Numbers of a vector, which must be this many if a size is given."""
        tensor = self._tensor(name, 1)
        _require_float(name, tensor)
        if size and tensor.shape[0] != size:
            raise ValueError(f"{name} has {tensor.shape[0]:,} numbers, not {size:,}")
        return tensor.shape[0]

    def require_block(self, name: str, shape: tuple[int, ...]) -> None:
        tensor = self._tensor(name, len(shape))
        _require_float(name, tensor)
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}, not {list(shape)}")

    def feed_forward(self, module: str, width: int) -> int:
        """Inner width of a gated feed-forward part, whose matrices must fit each other."""
        inner = self.matrix(f"{module}.gate_proj")[0]
        self.require(f"{module}.gate_proj", inner, width)
        self.require(f"{module}.up_proj", inner, width)
        self.require(f"{module}.down_proj", width, inner)
        return inner

    def refuse_others(self) -> None:
        """Refuse a tensor that was not asked for: without it the head would draft wrongly."""
        if others := self.by_name.keys() - self._asked_for:
            raise ValueError(f"it has a tensor {min(others)[:64]}, which is not known")

    def _tensor(self, name: str, dimensions: int) -> StoredTensor:
        if name not in self.by_name:
            raise ValueError(f"it lacks {name}")
        self._asked_for.add(name)
        tensor = self.by_name[name]
        if len(tensor.shape) != dimensions or 0 in tensor.shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}")
        return tensor


def _require_float(name: str, tensor: StoredTensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise ValueError(f"{name} is of type {tensor.dtype[:20]}, which cannot be run")


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
    queries, keys = (tensors.matrix(f"{module}.{part}")[0] for part in ("q_proj", "k_proj"))
    size = tensors.vector(f"{module}.q_norm.weight") if has_norms else _head_size(settings, width)
    if queries % size or keys % size:
        raise ValueError(f"{module} has no whole heads of {size:,}")
    heads, kv_heads = queries // size, keys // size
    for key, found in (("num_attention_heads", heads), ("num_key_value_heads", kv_heads)):
        if settings.count(key, found) != found:
            raise ValueError(f"{key} is {settings.count(key):,}, and {module} has {found:,}")
    if heads % kv_heads:
        raise ValueError(f"{heads:,} heads of {module} cannot share {kv_heads:,}")
    shapes = {
        "q_proj": (queries, inputs),
        "k_proj": (keys, inputs),
        "v_proj": (keys, inputs),
        "o_proj": (width, queries),
    }
    for part, shape in shapes.items():
        tensors.require(f"{module}.{part}", *shape)
    for norm in ("q_norm", "k_norm") if has_norms else ():
        tensors.vector(f"{module}.{norm}.weight", size)
    has_sinks = f"{module}.sinks" in tensors.by_name
    if has_sinks:
        tensors.vector(f"{module}.sinks", heads)
    biased = tuple(
        part
        for part, (outputs, _) in shapes.items()
        if tensors.has_bias(f"{module}.{part}", outputs)
    )
    return AttentionShape(heads, kv_heads, size, inputs, has_norms, has_sinks, biased)


def _head_size(settings: Settings, width: int) -> int:
    size, heads = settings.count("head_dim"), settings.count("num_attention_heads")
    if not size and not heads:
        raise ValueError("its config.json does not say how many heads its attention has")
    return size or max(width // heads, 1)


_PLAIN = frozenset({"", "default", "mrope"})
"""Of a text alone, sections for images (M-RoPE) rotate like none."""

_TRAINED = "original_max_position_embeddings"

_SCALED: dict[str, tuple[str, ...]] = {
    "linear": (),
    "llama3": ("low_freq_factor", "high_freq_factor", _TRAINED),
    "yarn": (_TRAINED, "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
}
"""Kinds of scaling, all by a factor, with the other settings that each may have."""


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
    further = (name for name in _SCALED[kind] if rope.has(name))
    found = {name: rope.number(name, 0.0) for name in ("factor", *further)}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayout:
    """Shapes of a head, whatever its kind.

    names: of its tensors in the files, by common name. width: of its hidden states; target_width:
    of the model's. taps: layers of the model whose inputs it reads. n_vocab: of the model;
    n_drafted: tokens that it knows. ties_output: whether its embedding is its output layer too.
    """

    names: Mapping[str, str]
    width: int
    target_width: int
    taps: tuple[int, ...]
    n_vocab: int
    n_drafted: int
    feed_forward: int
    attention: AttentionShape
    rotary: Rotary
    epsilon: float
    has_embeddings: bool
    has_output: bool
    ties_output: bool = False

    @property
    def n_taps(self) -> int:
        return len(self.taps) or DEFAULT_TAPS


def vocabularies(
    tensors: Tensors,
    settings: Settings,
    width: int,
    target_width: int,
    *,
    ties_output: bool = False,
) -> tuple[int, int]:
    """Tokens of the model, and those that the head drafts; fields of a HeadLayout."""
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
