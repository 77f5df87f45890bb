"""The models to choose from: their size, whether they fit, the speed to expect of them."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from app.loading.placement import SMALLEST_CONTEXT, can_stream
from app.loading.session_options import DEFAULT_CONTEXT
from backends.base import SpecchatError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.files.gguf_header import IncompleteFileError, read_header
from backends.hardware.host import available_memory
from models import catalogue
from models.byte_sizes import short_size
from models.catalogue import CatalogueDrafter, DrafterKind, Entry
from models.metadata.memory_bill import Fit, ModelFacts, bill, facts_of_entry, facts_of_target, fit
from models.metadata.trained_drafters import drafter_alone, expected_backend
from models.reference import Reference, entry_of
from models.stores.available_models import DEMO, installed
from models.stores.scan import Installed


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of plain decoding; estimated from size and memory speed unless measured."""

    rate: float
    is_measured: bool


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model to choose.

    size_bytes: of its file, exact for an installed one. read_bytes: read by each plain token.
    fit: None where its memory is unknown. n_ctx: tokens of context that memory_bytes counts with.
    fault: why an installed model cannot be loaded; empty if nothing is known against it.
    """

    name: str
    size_bytes: int | None
    read_bytes: int | None
    fit: Fit | None
    about: str
    """The origin of an installed model; else quantization and licence."""
    path: Path | None = None
    memory_bytes: int | None = None
    n_ctx: int = DEFAULT_CONTEXT
    licence: str = ""
    is_gated: bool = False
    fault: str = ""
    speed: Speed | None = None
    drafters: tuple[CatalogueDrafter, ...] = ()
    """Drafters that the catalogue names for it, without those for any model."""
    good_at: tuple[str, ...] = ()
    """What the catalogue commends it for, such as "code"."""
    is_starred: bool = False
    trained: str = ""
    """What drafter an installed file is that is no model; empty for a model."""

    @property
    def is_usable(self) -> bool:
        return not (self.fault or self.trained)

    @property
    def is_installed(self) -> bool:
        return self.path is not None


def offered(folder: Path, free: int | None = None) -> list[ListedModel]:
    """List every model that can be run or downloaded; their speeds are left out.

    free: bytes of memory, by default those free on this machine.
    """
    room = available_memory() if free is None else free
    local = installed(folder)
    present = [entry_of(Reference(model.name, model.path)) for model in local]
    return [*_installed(local, room), *_downloadable(present, room)]


@dataclass(frozen=True, slots=True)
class ModelList:
    """The models to choose from on this machine, whose free memory is in bytes.

    loaded: name of the model in use, empty if there is none. used: when each model answered last,
    in seconds since 1970.
    """

    models: tuple[ListedModel, ...]
    free_bytes: int
    folder: Path
    loaded: str = ""
    used: Mapping[str, float] = field(default_factory=dict[str, float])


def list_models(
    folder: Path,
    speed: Callable[[ListedModel, int], Speed | None] = lambda _model, _free: None,
    loaded: str = "",
    loaded_bytes: int = 0,
) -> ModelList:
    """List models with their speed.

    speed: of a model that can be used, with so many bytes of memory free; None if unknown.
    loaded: the model in use; loaded_bytes: its memory, which another model could have.
    """
    free = available_memory()
    room = free + loaded_bytes
    models = (
        replace(model, speed=speed(model, room)) if model.is_usable else model
        for model in offered(folder, room)
    )
    return ModelList(tuple(models), free, folder, loaded)


def _installed(local: Sequence[Installed], room: int) -> Iterator[ListedModel]:
    for model in local:
        size, path = model.size_bytes, model.path
        listed = ListedModel(model.name, size, size, None, model.origin.value, path)
        try:
            if (drafter := drafter_alone(path)) is not None:
                yield replace(listed, trained=drafter.kind.value)
                continue
            facts = facts_of_target(path)
        except SpecchatError as error:
            yield replace(listed, fault=_fault(error))
            continue
        if path.is_file() and read_header(path).integer("pooling_type"):
            continue  # it embeds texts; a setting names it
        n_ctx, needed = _memory(facts)
        entry, backend = entry_of(Reference(model.name, path)), expected_backend(path)
        yield replace(
            listed,
            read_bytes=facts.read_bytes or size,
            fit=_fit(path, facts, needed, room),
            memory_bytes=needed,
            n_ctx=n_ctx,
            licence=licence_name(entry.licence) if entry else "",
            good_at=entry.good_at if entry else (),
            drafters=tuple(one for one in _own(entry) if one.runs_on(backend)),
        )


def _fit(path: Path, facts: ModelFacts, needed: int, room: int) -> Fit:
    found = fit(needed, room)
    is_too_big = found is Fit.TOO_BIG and bill(facts, SMALLEST_CONTEXT).total > room
    is_streamable = path.is_file() and can_stream(facts, room)
    return Fit.STREAMS if is_too_big and is_streamable else found


def _fault(error: SpecchatError) -> str:
    if not isinstance(error, IncompleteFileError):
        return "damaged or cut short"
    present, complete = short_size(error.present_bytes), short_size(error.complete_bytes)
    unit = complete.rpartition(" ")[2]
    return f"incomplete: {present.removesuffix(f' {unit}')} of {complete}"


def _own(entry: Entry | None) -> tuple[CatalogueDrafter, ...]:
    known = entry.drafters if entry else ()
    return tuple(one for one in known if one.kind is not DrafterKind.CROSS_VOCABULARY)


def _downloadable(present: Sequence[Entry | None], room: int) -> Iterator[ListedModel]:
    for entry in catalogue.entries():
        if not entry.chats or entry in present:
            continue
        size = entry.size(entry.default_quantization)
        count = size.bytes if size else None
        read = round(count * entry.active / entry.parameters) if count else None
        facts = facts_of_entry(entry, entry.default_quantization)
        n_ctx, needed = _memory(facts) if facts else (DEFAULT_CONTEXT, None)
        gated = ", asks you to accept its licence" if entry.is_gated else ""
        yield ListedModel(
            entry.name,
            count,
            read,
            fit(needed, room) if needed else None,
            f"{entry.default_quantization}, {entry.licence}{gated}",
            memory_bytes=needed,
            n_ctx=n_ctx,
            licence=licence_name(entry.licence),
            is_gated=entry.is_gated,
            good_at=entry.good_at,
            drafters=_own(entry),
        )


def facts_for_bill(path: Path) -> ModelFacts | None:
    """Figures for the memory bill of a model, None if its file is damaged."""
    try:
        return facts_of_target(path)
    except SpecchatError:
        return None


def fit_here(facts: ModelFacts | None, path: Path | None = None) -> Fit | None:
    """Whether a model fits into the free memory; path: of one that is installed."""
    if facts is None:
        return None
    needed, room = _memory(facts)[1], available_memory()
    return fit(needed, room) if path is None else _fit(path, facts, needed, room)


def _memory(facts: ModelFacts) -> tuple[int, int]:
    n_ctx = min(facts.context_limit or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return n_ctx, bill(facts, n_ctx).total


def licence_name(licence: str) -> str:
    return {"apache-2.0": "Apache-2.0", "mit": "MIT"}.get(licence, licence)


STAR = "★"


class Order(StrEnum):
    """How models are sorted, beside those that are starred, which are first."""

    CATALOGUE = "catalogue"
    NAME = "name"
    SIZE = "size"
    SPEED = "speed"
    USED = "last-use"


def starred(names: str) -> set[str]:
    return {name.strip() for name in names.split(",")} - {""}


def arranged(
    models: Iterable[ListedModel], order: Order, stars: Collection[str], used: Mapping[str, float]
) -> list[ListedModel]:
    """Models with their stars: starred ones first, and the smallest, fastest or last used.

    Those of which that is not known are at the end.
    """

    def rank(model: ListedModel) -> tuple[bool, float, str]:
        size, rate = model.size_bytes or math.inf, model.speed.rate if model.speed else 0.0
        by = {Order.SIZE: size, Order.SPEED: -rate, Order.USED: -used.get(model.name, 0.0)}
        name = model.name.lower() if order is Order.NAME else ""
        return not model.is_starred, by.get(order, 0.0), name

    return sorted((replace(one, is_starred=one.name in stars) for one in models), key=rank)


SUGGESTED_RATES = (8.0, 12.0, 20.0)
"""Tokens a second that suggested models should reach: from readable to quick."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Memory bandwidth of a device, and the fraction of it that plain decoding reaches.

    bandwidth: bytes per second.
    """

    bandwidth: float
    fraction: float

    @classmethod
    def measured(
        cls, bandwidth: float | None, rate: float | None, bytes_per_token: int
    ) -> "Reach | None":
        """From a model's plain rate; None if bandwidth or rate are unknown.

        The fraction is at most 1: a small model may be read from the processor's cache.
        """
        if not bandwidth or not rate:
            return None
        return cls(bandwidth, min(rate * bytes_per_token / bandwidth, 1.0))

    def rate(self, bytes_per_token: int | None) -> float | None:
        """Tokens a second to expect of a model that reads so many bytes; None if unknown."""
        return self.bandwidth * self.fraction / bytes_per_token if bytes_per_token else None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model to download, and the tokens a second to expect of it."""

    model: ListedModel
    rate: float


def suggested(offered: Sequence[ListedModel], reach: Reach | None) -> list[Suggestion]:
    """Up to three models to download, largest first: those that should reach 8, 12 and 20 tok/s.

    Each is the largest one that fits this machine and needs no login; none where no speed is known.
    """
    rated = [one for one in _rated(offered, reach) if not one.model.is_installed]
    chosen: list[Suggestion] = []
    for least in SUGGESTED_RATES:
        quick = (one for one in rated if one.rate >= least and one not in chosen)
        chosen += [one for one in [next(quick, None)] if one is not None]
    return chosen


def recommended(offered: Sequence[ListedModel], reach: Reach | None) -> Suggestion | None:
    """The first one that is suggested, also if it is here already."""
    return next((one for one in _rated(offered, reach) if one.rate >= SUGGESTED_RATES[0]), None)


def _rated(offered: Sequence[ListedModel], reach: Reach | None) -> list[Suggestion]:
    """Models of the catalogue that fit and need no login, with their rates, largest first."""
    rated = [
        Suggestion(model, rate)
        for model in offered
        if _can_be_suggested(model) and reach and (rate := reach.rate(model.read_bytes))
    ]
    return sorted(rated, key=lambda suggestion: -(suggestion.model.size_bytes or 0))


def _can_be_suggested(model: ListedModel) -> bool:
    entry = catalogue.find(model.name)
    if model.path is not None:
        entry = entry_of(Reference(model.name, model.path)) if model.name != DEMO else None
    return entry is not None and not entry.is_gated and model.fit is Fit.FITS


def about(rate: float | None, *, is_narrow: bool = False) -> str:
    """An expected rate in words, such as "about 10 tok/s", or "~10 tok/s"; empty if unknown."""
    if rate is None:
        return ""
    if rate < 1.0:
        return "<1 tok/s" if is_narrow else "under 1 tok/s"
    return f"{'~' if is_narrow else 'about '}{round(float(f'{rate:.2g}')):,} tok/s"


def drafters_in_short(drafters: Sequence[CatalogueDrafter]) -> str:
    """Short names for a column: "drafters: 0.8b, mtp; with MLX: dspark"; may be empty."""
    used, with_mlx = _apart(drafters)
    words = [f"drafters: {', '.join(used)}"] if used else []
    words += [f"with MLX: {', '.join(with_mlx)}"] if with_mlx else []
    return "; ".join(words)


def drafters_in_sentences(drafters: Sequence[CatalogueDrafter]) -> str:
    """What drafts for a model, and what others measured with one that was trained for it."""
    used, with_mlx = _apart(drafters)
    sentences = [f"Drafts with {', '.join(used)}."] if used else []
    if with_mlx:
        sentences.append(f"With MLX: {', '.join(with_mlx)}.")
    told = next((one for one in drafters if one.published), None)
    if told is not None:
        sentences.append(f"Published for {told.alias}, × plain: {told.published}.")
    return " ".join(sentences)


def _apart(drafters: Sequence[CatalogueDrafter]) -> tuple[list[str], list[str]]:
    """Names of the drafters of a file for llama.cpp, and of those that are for MLX alone."""
    used = [one.alias for one in drafters if one.runs_on(LLAMACPP)]
    return used, [one.alias for one in drafters if one.alias not in used and one.runs_on(MLX)]
