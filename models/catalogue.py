"""The models specchat knows by a short name: catalogue.toml, read when first asked for."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from backends.base import SpecchatError
from backends.base.regular_file import read_text
from models.attention import Attention, Layers
from models.bounded_toml import parse_toml
from models.model_names import simplified

FILE = Path(__file__).with_name("catalogue.toml")

_MOST_BYTES = 1 << 18
_MOST = 1 << 60
_LONGEST_REASON = 200

_BITS_PER_WEIGHT = {
    "Q2_K": 3.2, "Q3_K_M": 3.9, "Q4_0": 4.6, "Q4_K_S": 4.6, "Q4_K_M": 4.9, "UD-Q4_K_M": 5.0,
    "UD-Q4_K_XL": 5.1,
    "Q5_K_M": 5.7, "Q6_K": 6.6, "Q8_0": 8.5, "MXFP4": 4.6,
}  # fmt: skip
"""Bits a weight takes in a file, its share of embeddings included: figures of 3B to 70B files."""


class DrafterKind(StrEnum):
    """How a drafter's tokens become the target's."""

    SAME_VOCABULARY = "same-vocabulary"
    NEXT_TOKEN_LAYERS = "next-token-layers"
    CROSS_VOCABULARY = "cross-vocabulary"


class SizeSource(StrEnum):
    """Where a file's size is from."""

    HUB = "hub"
    """Exact, from the hub."""
    PAGE = "page"
    """Rounded, as a page shows it."""
    ESTIMATE = "estimate"
    """From parameters and quantization; within about a tenth, more below 1B parameters."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a file, and how sure they are."""

    bytes: int
    source: SizeSource


@dataclass(frozen=True, slots=True)
class CatalogueDrafter:
    """A drafter by its short name.

    model is a name of the catalogue, repository one of the hub; both are empty for next-token
    layers in the model's own file.
    """

    alias: str
    kind: DrafterKind
    model: str = ""
    repository: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue. context is in tokens; active differs where experts take turns."""

    name: str
    also: tuple[str, ...]
    family: str
    parameters: int
    active: int
    context: int
    licence: str
    is_gated: bool
    chats: bool
    attention: Attention | None
    """None where the figures are not known."""
    repository: str
    file_pattern: str
    quantizations: tuple[str, ...]
    """The first is the default."""
    sizes: Mapping[str, int | float]
    mlx: str
    template: str
    evidence: str
    checked: str
    drafters: tuple[CatalogueDrafter, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it goes by."""
        return (self.name, *self.also)

    @property
    def default_quantization(self) -> str:
        """What is meant where no quantization is named."""
        return self.quantizations[0]

    def file(self, quantization: str) -> str:
        """The file's name in the repository."""
        return self.file_pattern.replace("{quantization}", quantization)

    def size(self, quantization: str) -> Size | None:
        """Bytes of a file, None where not even an estimate can be had."""
        stated = self.sizes.get(quantization)
        if stated is not None:
            exact = isinstance(stated, int)
            return Size(int(stated), SizeSource.HUB if exact else SizeSource.PAGE)
        bits = _BITS_PER_WEIGHT.get(quantization)
        return Size(round(self.parameters * bits / 8), SizeSource.ESTIMATE) if bits else None


@functools.cache
def entries() -> tuple[Entry, ...]:
    """The whole catalogue, in the order of its file.

    Raises:
        SpecchatError: the file is damaged.
    """
    return read_file(FILE)


def find(name: str) -> Entry | None:
    """The entry of a name, however it is capitalised and punctuated."""
    return _by_name().get(simplified(name))


def entry_of_file(file_name: str) -> Entry | None:
    """The entry a file is of, by its name."""
    wanted = simplified(file_name)
    starts = {simplified(entry.file_pattern.partition("{")[0]): entry for entry in entries()}
    found = [start for start in starts if wanted.startswith(start)]
    return starts[max(found, key=len)] if found else None


def read_file(path: Path) -> tuple[Entry, ...]:
    """Read a catalogue out of a file.

    Raises:
        SpecchatError: it is damaged, or cannot be read.
    """
    try:
        return read(read_text(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        raise _damaged(str(error)) from error


def read(text: str) -> tuple[Entry, ...]:
    """Read a catalogue; families and general keys fill in what a model does not say itself.

    Raises:
        SpecchatError: it is damaged.
    """
    try:
        data = parse_toml(text)
        found = (_entry(one, data["family"][one["family"]], data) for one in data["model"])
        return tuple(map(_checked, found))
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _damaged(why: str) -> SpecchatError:
    return SpecchatError(f"{FILE} is damaged", why, "Install specchat again.")


def _checked(entry: Entry) -> Entry:
    """An entry of which every value is of its kind.

    Raises:
        TypeError: one is not.
    """
    layers = entry.attention.layers if entry.attention else ()
    numbers = (
        entry.parameters, entry.active, entry.context,
        *(n for one in layers for n in (one.count, one.kv_heads, one.key_size, one.window or 1)),
    )  # fmt: skip
    texts: tuple[object, ...] = (
        *entry.names, entry.family, entry.licence, entry.repository, entry.file_pattern, entry.mlx,
        entry.template, entry.evidence, entry.checked, *entry.quantizations, *entry.sizes,
        *(text for one in entry.drafters for text in (one.alias, one.model, one.repository)),
    )  # fmt: skip
    if (
        any(type(one) is not int or not 0 < one < _MOST for one in numbers)
        or any(type(one) not in (int, float) or not 0 < one < _MOST for one in entry.sizes.values())
        or {type(one) for one in texts} != {str}
        or {type(entry.is_gated), type(entry.chats)} != {bool}
        or not entry.quantizations
    ):
        raise TypeError(f"{entry.name!r} has a value of the wrong kind"[:_LONGEST_REASON])
    return entry


def drafters(target: Entry | None) -> tuple[CatalogueDrafter, ...]:
    """Those of a target; of an unknown one, those that any model may have."""
    if target is not None:
        return target.drafters
    known = {one.alias: one for entry in entries() for one in entry.drafters}
    return tuple(one for one in known.values() if one.kind is DrafterKind.CROSS_VOCABULARY)


def drafter(alias: str, target: Entry | None) -> CatalogueDrafter | None:
    """What a short name means for a target; for an unknown one, where it means the same for all."""
    wanted = alias.lower()
    return next((one for one in drafters(target) if one.alias == wanted), None)


@functools.cache
def _by_name() -> dict[str, Entry]:
    return {simplified(name): entry for entry in entries() for name in entry.names}


def _entry(model: dict[str, Any], family: dict[str, Any], data: dict[str, Any]) -> Entry:
    drafters: dict[str, dict[str, str]] = {
        **data["drafters"],
        **family.get("drafters", {}),
        **model.get("drafters", {}),
    }
    given = {"quantizations": data["quantizations"]} | family | model
    base = given["repository"].rpartition("/")[2].removesuffix("-GGUF")
    return Entry(
        name=given["name"],
        also=tuple(given.get("also", ())),
        family=given["family"],
        parameters=int(given["parameters"]),
        active=int(given.get("active", given["parameters"])),
        context=given["context"],
        licence=given["licence"],
        is_gated=given.get("gated", False),
        chats=given.get("chats", True),
        attention=_attention(given),
        repository=given["repository"],
        file_pattern=given.get("file", f"{base}-{{quantization}}.gguf"),
        quantizations=tuple(given["quantizations"]),
        sizes=given.get("sizes", {}),
        mlx=given.get("mlx", ""),
        template=given.get("template", ""),
        evidence=given.get("evidence", ""),
        checked=given.get("checked", ""),
        drafters=_drafters(drafters, given, data),
    )


def _drafters(
    drafters: dict[str, dict[str, str]], target: dict[str, Any], data: dict[str, Any]
) -> tuple[CatalogueDrafter, ...]:
    """Those that are smaller than the target."""
    parameters = {model["name"]: model["parameters"] for model in data["model"]}
    return tuple(
        CatalogueDrafter(
            alias, DrafterKind(facts["kind"]), facts.get("model", ""), facts.get("repository", "")
        )
        for alias, facts in drafters.items()
        if parameters.get(facts.get("model"), 0) < target["parameters"]
    )


def _attention(given: dict[str, Any]) -> Attention | None:
    if "attention" not in given:
        return None
    full, window = given["attention"], given.get("window")
    layers = [Layers(full["layers"], full["heads"], full["size"], full["size"])]
    if window:
        size = window["size"]
        layers.append(Layers(window["layers"], window["heads"], size, size, window["tokens"]))
    return Attention(tuple(layers))
