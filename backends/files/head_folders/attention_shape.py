"""Shape of a head's attention, from its tensors."""

from dataclasses import dataclass

from backends.files.head_folders.settings import Settings
from backends.files.head_folders.tensors import Tensors, parts_of

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
        """Of a token's keys and values."""
        return 2 * self.kv_heads * self.head_size


def attention_shape(
    tensors: Tensors, module: str, settings: Settings, inputs: int, width: int
) -> AttentionShape:
    """The shape of an attention module that reads inputs and gives width numbers.

    Raises:
        ValueError: its tensors do not fit each other or the settings, in words.
    """
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
