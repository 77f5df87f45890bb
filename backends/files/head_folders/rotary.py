"""How a head rotates queries and keys by their positions."""

from collections.abc import Mapping
from dataclasses import dataclass

from backends.files.head_folders.settings import Settings

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
    """The rotation of heads of this size.

    Raises:
        ValueError: it is of a kind that is not known, in words.
    """
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
