"""The drafters of a session: built from a spec, measured, and put under one controller."""

import contextlib
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from app import automatic, self_drafter
from app.acceptance_memory import AcceptanceMemory
from app.calibrations import Calibrations
from app.draft_spec import LOOKUP, DraftSpec, Link
from app.drafter_engine import drafter_backend, load_drafter
from app.drafter_model import open_drafter, tried
from app.memory_plan import drafter_context
from app.obtaining import facts_before
from app.paths import Paths
from backends.base import (
    Context,
    DownloadError,
    DraftUnavailableError,
    Model,
    ModelError,
    Rollback,
)
from backends.choice import AUTO
from backends.derivation import derives
from decoding.controller import Controller
from decoding.cost import CostModel
from decoding.draft import Drafter
from decoding.drafters.chain import Chain
from decoding.drafters.prompt_lookup import PromptLookup
from decoding.member import Member
from decoding.parking import State, overall
from models.fingerprint import fingerprint
from models.model_facts import ModelFacts, facts_of
from models.recipe import Recipe
from models.reference import HubReference, Reference, at_hand
from models.self_draft import SelfDrafts


@dataclass(frozen=True, slots=True)
class Place:
    """Where drafters are built: the target with its context, and how engines are run."""

    target: Model
    context: Context
    paths: Paths
    threads: int | None
    gpu_layers: int | None
    notify: Callable[[str], None]
    room: int | None = None
    """Bytes that drafters may take, None where that is not known."""
    obtain: Callable[[Reference | HubReference], Reference] = at_hand
    """Brings a drafter that is not on this machine, or says how to get it."""
    backend: str = AUTO
    """The one that is asked for."""


@dataclass(frozen=True, slots=True)
class Built:
    """A drafter of a session, with the model it runs, if any, and its key in the memory."""

    key: str
    member: Member
    model: Model | None = None
    kv_bytes: int = 0
    note: str = ""
    """In words, what is special about it."""


@dataclass(slots=True)
class Drafting:
    """What came of a spec. missing says what was asked for and cannot be had, and why."""

    requested: str
    missing: str = ""
    given_up: list[str] = field(default_factory=list[str])
    """So that the drafters fit in memory."""
    built: list[Built] = field(default_factory=list[Built])
    controller: Controller | None = None
    memory: AcceptanceMemory | None = None
    costs_file: Path | None = None

    @property
    def state(self) -> State:
        """On, parked or off."""
        return overall(self.controller.standings)[0] if self.controller else State.OFF

    @property
    def reason(self) -> str:
        """Why what is not on is not."""
        reasons = overall(self.controller.standings)[1] if self.controller else ""
        return "; ".join(filter(None, [self.missing, reasons]))

    @property
    def names(self) -> list[str]:
        """The drafters in order of preference."""
        return [built.member.name for built in self.built]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is special about the drafters, and what was given up for them."""
        return (*self.given_up, *(built.note for built in self.built if built.note))

    @property
    def chain(self) -> Drafter | None:
        """The same drafters, asked at every step whether it pays or not: for checks."""
        drafters = [built.member.drafter for built in self.built]
        return Chain(drafters) if drafters else None

    @property
    def drafter_bytes(self) -> int:
        """Memory of the drafters' weights."""
        return sum(built.model.info.weight_bytes for built in self.built if built.model)

    @property
    def kv_bytes(self) -> int:
        """Memory of the drafters' key-value caches."""
        return sum(built.kv_bytes for built in self.built)

    def remember(self) -> None:
        """Keep what was learned for the next start; costs that do not hold are measured again."""
        if self.memory is None or self.controller is None:
            return
        if self.costs_file and self.controller.costs.has_drifted:
            with contextlib.suppress(OSError):
                self.costs_file.unlink(missing_ok=True)
        for built in self.built:
            member = built.member
            facts: dict[str, object] = {"name": member.name}
            if built.model and member.cost and member.judged.judged > 0.0:
                share = member.judged.accepted / member.judged.judged
                facts |= {"acceptance": share, "draw_seconds": member.cost.draw_seconds}
                if not built.model.info.variant:
                    facts |= {"path": str(built.model.info.path)}
            self.memory.remember(built.key, member.acceptance, facts)
        self.memory.save()

    def close(self) -> None:
        """Free the drafter models."""
        for built in self.built:
            if built.model:
                built.model.close()


def build(spec: DraftSpec, place: Place) -> Drafting:
    """Make the drafters of a spec; one that cannot be had is left out, with the reason.

    Raises:
        ModelError: the target cannot be run.
    """
    drafting = Drafting(spec.requested)
    info = place.target.info
    if not spec.links:
        drafting.missing = "switched off"
    elif info.rollback is not Rollback.ANY:
        drafting.missing = f"{info.name} {info.rollback_refusal}"
    else:
        calibrations = Calibrations(place.paths, place.notify)
        costs = calibrations.target(place.target, place.context)
        drafting.costs_file = calibrations.file(info)
        drafting.memory = AcceptanceMemory(info.path, place.paths)
        _build_links(drafting, spec, place, calibrations, costs)
        if drafting.built:
            members = [built.member for built in drafting.built]
            drafting.controller = Controller(members, costs, info.n_vocab)
    return drafting


def _build_links(
    drafting: Drafting,
    spec: DraftSpec,
    place: Place,
    calibrations: Calibrations,
    costs: CostModel,
) -> None:
    memory = drafting.memory
    assert memory is not None
    links = list(spec.links)
    if spec.is_automatic:
        links += automatic.candidates(place.target.info, costs, memory, place.room)
    missing: list[str] = []
    for link in links:
        try:
            built = _build(link, place, calibrations, drafting)
        except (DownloadError, DraftUnavailableError, ModelError) as error:
            if not spec.is_automatic:
                missing.append(f"{error.what}: {error.why}" if error.why else error.what)
            continue
        if spec.is_automatic and not automatic.pays(built.member, costs):
            if built.model:
                built.model.close()
            continue
        drafting.built.append(built)
    drafting.missing = "; ".join(missing)


def _build(link: Link, place: Place, calibrations: Calibrations, drafting: Drafting) -> Built:
    memory = drafting.memory
    assert memory is not None
    if link.name == LOOKUP:
        return Built(LOOKUP, Member(PromptLookup(), memory.recall(LOOKUP)))
    room = place.room
    if room is not None:
        room -= drafting.drafter_bytes + drafting.kv_bytes
    expected = facts_before(link.reference) if link.reference else None
    if expected is not None:  # what cannot fit is not even downloaded
        drafter_context(link.name, expected, place.context.n_ctx, room)
    facts, loaded = _source(link, place)
    n_ctx, given_up = drafter_context(link.name, facts, place.context.n_ctx, room)
    drafting.given_up += given_up
    with ExitStack() as stack:
        model = stack.enter_context(closing(loaded()))
        opened = open_drafter(link.name, model, place.target, n_ctx, is_own=link.reference is None)
        context = opened.context
        cost = calibrations.drafter(model, context, link.known_as)
        key = fingerprint(model.info.path, model.info.variant)
        acceptance = memory.recall(key)
        if not acceptance.counts():
            acceptance = tried(opened, place.target, place.context)
        stack.pop_all()
    kv_bytes = context.n_ctx * context.kv_bytes_per_token
    return Built(key, Member(opened.drafter, acceptance, cost), model, kv_bytes, opened.note)


def _source(link: Link, place: Place) -> tuple[ModelFacts, Callable[[], Model]]:
    """What the model of a drafter takes of memory, and what loads it."""
    info = place.target.info
    if link.reference is None and derives(info):
        recipe = link.recipe or Recipe.default(info)
        return self_drafter.facts(info, recipe), lambda: self_drafter.made(
            place.target, recipe, place.notify
        )
    path = _file(link, place)
    facts = facts_of(path, drafter_backend(path, place.backend))
    return facts, lambda: load_drafter(path, place.backend, place.threads, place.gpu_layers)


def _file(link: Link, place: Place) -> Path:
    if link.reference is not None:
        return place.obtain(link.reference).path
    info = place.target.info
    recipe = link.recipe or Recipe.default(info)
    words = f"making the self-drafter {recipe.slug}"
    return SelfDrafts(place.paths.self_drafts).get(
        info, recipe, lambda done, total: place.notify(f"{words}: {done} of {total}")
    )
