"""Models with a short name: catalogue.toml, read on first use."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from backends.engines.backend_selection import MLX
from backends.files.attention import Attention, Layers
from backends.files.gguf_drafter import TrainedKind
from models.names import model_called, simplified

FILE = Path(__file__).with_name("catalogue.toml")

_GGUF = "-GGUF"
"""How repositories of files for llama.cpp end."""

_BITS_PER_WEIGHT = {
    "Q2_K": 3.2, "Q3_K_M": 3.9, "Q4_0": 4.6, "Q4_K_S": 4.6, "Q4_K_M": 4.9, "UD-Q4_K_M": 5.0,
    "UD-Q4_K_XL": 5.1, "UD-Q2_K_XL": 3.2,
    "Q5_K_M": 5.7, "Q6_K": 6.6, "Q8_0": 8.5, "MXFP4": 4.6,
}  # fmt: skip
"""Bits per weight of a file, embeddings included: averages of 3B to 70B files."""

_FIELDS = {"gated": "is_gated", "file": "file_pattern"}
"""Fields of an entry whose keys in the file have other names."""

GOOD_AT = ("chat", "code", "reasoning", "images")

_KEYS = ("model", "repository", "file", "published", "mlx", "licence")
"""Keys of a drafter beside its kind, in the order of CatalogueDrafter."""


class DrafterKind(StrEnum):
    SAME_VOCABULARY = "same-vocabulary"
    CROSS_VOCABULARY = "cross-vocabulary"
    NEXT_TOKEN_LAYERS = "next-token-layers"
    ASSISTANT = "assistant"
    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"

    @property
    def is_trained(self) -> bool:
        return self not in (DrafterKind.SAME_VOCABULARY, DrafterKind.CROSS_VOCABULARY)

    @property
    def words(self) -> str:
        """What it is, in a few words; empty for a model with the target's tokens."""
        if self.is_trained:
            return TrainedKind[self.name].value
        return "across vocabularies" if self is DrafterKind.CROSS_VOCABULARY else ""


class SizeSource(StrEnum):
    HUB = "hub"
    """Exact size from the hub."""
    PAGE = "page"
    """Rounded size from a web page."""
    ESTIMATE = "estimate"
    """Estimate from parameters and quantization, within about 10 %, more below 1B parameters."""


@dataclass(frozen=True, slots=True)
class Size:
    bytes: int
    source: SizeSource


@dataclass(frozen=True, slots=True)
class CatalogueDrafter:
    """Drafter with a short name.

    model: its name in the catalogue. repository, file: where it is on the hub for llama.cpp. All
    are empty for next-token layers in the model's own file. mlx: repository of the same for MLX.
    licence: of a trained one, empty if unknown. published: what others measured with it, relative
    to plain decoding; empty if nothing was found.
    """

    alias: str
    kind: DrafterKind
    model: str = ""
    repository: str = ""
    file: str = ""
    published: str = ""
    mlx: str = ""
    licence: str = ""

    def runs_on(self, backend: str) -> bool:
        """Whether it was published for the backend of its model."""
        if not self.kind.is_trained:
            return True
        if backend == MLX:
            return bool(self.mlx)
        is_own = self.kind is DrafterKind.NEXT_TOKEN_LAYERS and not self.repository
        return bool(self.file) or is_own or self.repository.endswith(_GGUF)

    @property
    def is_in_model(self) -> bool:
        """Whether it is a part of the model's file, perhaps only of that in its repository."""
        return self.kind is DrafterKind.NEXT_TOKEN_LAYERS and not self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Model of the catalogue. context: in tokens; active: parameters used per token."""

    name: str
    also: tuple[str, ...]
    family: str
    parameters: int
    active: int
    context: int
    licence: str
    attention: Attention | None
    """None if unknown."""
    repository: str
    file_pattern: str
    quantizations: tuple[str, ...]
    """Available quantizations, the default first."""
    drafters: tuple[CatalogueDrafter, ...]
    is_gated: bool = False
    chats: bool = True
    good_at: tuple[str, ...] = ()
    """Of GOOD_AT."""
    sizes: Mapping[str, int | float] = field(default_factory=dict[str, int | float])
    mlx: str = ""
    template: str = ""
    evidence: str = ""
    checked: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def default_quantization(self) -> str:
        return self.quantizations[0]

    def file(self, quantization: str) -> str:
        return self.file_pattern.replace("{quantization}", quantization)

    def size(self, quantization: str) -> Size | None:
        """Size of a file, None if it cannot even be estimated."""
        stated = self.sizes.get(quantization)
        if stated is not None:
            exact = isinstance(stated, int)
            return Size(int(stated), SizeSource.HUB if exact else SizeSource.PAGE)
        bits = _BITS_PER_WEIGHT.get(quantization)
        return Size(round(self.parameters * bits / 8), SizeSource.ESTIMATE) if bits else None


@functools.cache
def entries() -> tuple[Entry, ...]:
    return read(FILE.read_text(encoding="utf-8"))


def find(name: str) -> Entry | None:
    return _by_name().get(simplified(name))


def entry_of_file(file_name: str) -> Entry | None:
    """Entry of a model file or folder, by its name; None for what is made from the model."""
    return _by_file().get(simplified(model_called(file_name)))


def read(text: str) -> tuple[Entry, ...]:
    """Read a catalogue; keys missing in a model default to its family's and the general ones."""
    data = tomllib.loads(text)
    return tuple(_entry(model, data["family"][model["family"]], data) for model in data["model"])


def drafters(target: Entry | None) -> tuple[CatalogueDrafter, ...]:
    """Drafters of a target; for an unknown one, those for any vocabulary."""
    if target is not None:
        return target.drafters
    by_alias = {each.alias: each for entry in entries() for each in entry.drafters}
    kind = DrafterKind.CROSS_VOCABULARY
    return tuple(each for each in by_alias.values() if each.kind is kind)


def drafter(alias: str, target: Entry | None) -> CatalogueDrafter | None:
    wanted = alias.lower()
    return next((each for each in drafters(target) if each.alias == wanted), None)


@functools.cache
def _by_file() -> dict[str, Entry]:
    """Entries by what their files and folders are called, with next-token layers or without."""
    return {
        simplified(model_called(name.removesuffix(_GGUF))): entry
        for entry in entries()
        for name in (
            entry.file(entry.default_quantization),
            entry.mlx,
            *(drafter.repository for drafter in entry.drafters if drafter.is_in_model),
        )
        if name
    }


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
    facts = {_FIELDS.get(key, key): value for key, value in given.items() if key != "window"}
    facts.setdefault("file_pattern", f"{base}-{{quantization}}.gguf")
    entry: dict[str, Any] = {
        **facts,
        "also": tuple(given.get("also", ())),
        "good_at": tuple(given.get("good_at", ())),
        "parameters": int(given["parameters"]),
        "active": int(given.get("active", given["parameters"])),
        "attention": _attention(given),
        "quantizations": tuple(given["quantizations"]),
        "drafters": _drafters(drafters, given, data),
    }
    return Entry(**entry)


def _drafters(
    drafters: dict[str, dict[str, str]], target: dict[str, Any], data: dict[str, Any]
) -> tuple[CatalogueDrafter, ...]:
    parameters = {model["name"]: model["parameters"] for model in data["model"]}
    return tuple(
        CatalogueDrafter(
            alias,
            DrafterKind(facts["kind"]),
            *(facts.get(key, "") for key in _KEYS),
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
