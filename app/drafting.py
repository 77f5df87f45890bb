"""The drafters of a session: built from a spec, measured, and put under one controller."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from app import automatic, guessing
from app.acceptance_memory import AcceptanceMemory
from app.calibrations import Calibrations
from app.candidate import Target
from app.candidates import own
from app.draft_link import LinkKind
from app.draft_spec import DraftSpec
from app.drafter_building import Builder, Built, Place
from app.knowledge import Knowledge
from app.memory_plan import MemoryPlan
from backends.base import DownloadError, DraftUnavailableError, ModelError, Rollback
from backends.hardware.host import available_memory
from decoding.context_class import ContextReader
from decoding.controller import Controller
from decoding.cost import CostModel
from decoding.drafters.ngram import Ngram
from decoding.parking import State, overall
from models.metadata.model_facts import facts_of
from models.reference import Reference


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
    max_branches: int = 1
    """Of a tree that the target can verify, 1 if it cannot."""

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
    def all_built(self) -> Iterator[Built]:
        """Every drafter, with those that others are made of."""
        for built in self.built:
            yield from built.all

    @property
    def drafter_bytes(self) -> int:
        """Memory of the drafters' weights."""
        return sum(built.model.info.weight_bytes for built in self.all_built if built.model)

    @property
    def kv_bytes(self) -> int:
        """Memory of the drafters' key-value caches."""
        return sum(built.kv_bytes for built in self.all_built)

    def compare(self, is_comparison: bool) -> None:
        """Say whether replies to one prompt are compared: then none teaches a drafter the next."""
        for built in self.all_built:
            if isinstance(built.member.drafter, Ngram):
                built.member.drafter.is_forgetful = is_comparison

    def remember(self) -> None:
        """Keep what was learned for the next start; costs that do not hold are measured again."""
        if self.memory is None or self.controller is None:
            return
        if self.costs_file and self.controller.costs.has_drifted:
            with contextlib.suppress(OSError):
                self.costs_file.unlink(missing_ok=True)
        for built in self.built:
            member = built.member
            if member.lines is not None and member.estimates.judged.judged == 0.0:
                continue  # it has but what it took over from them
            self.memory.remember(built.key, member.estimates.acceptance, built.facts)
            for part in built.parts:
                self._remember_part(part, self.memory)
        self.memory.save()
        for built in self.all_built:
            if built.learned:
                built.learned.keep()

    def save(self) -> None:
        """Write what waits for a later save, so that drafters built from now on find it."""
        for built in self.all_built:
            if built.learned:
                built.learned.save()

    def leave_out(self, chat: int | None) -> None:
        """Look at no earlier state of the chat that is being answered: its text is at hand."""
        for built in self.all_built:
            if built.corpus:
                built.corpus.without = chat

    def _remember_part(self, part: Built, memory: AcceptanceMemory) -> None:
        """What was learned of a drafter by one that it is a part of."""
        if part.member.estimates.judged.judged > 0.0:
            memory.remember(part.key, part.member.estimates.acceptance, {"name": part.member.name})
        for below in part.parts:
            self._remember_part(below, memory)

    def close(self) -> None:
        """Free the drafter models, and save what was learned."""
        for built in self.built:
            built.close()


def build(spec: DraftSpec, place: Place) -> Drafting:
    """Make the drafters of a spec; one that cannot be had is left out, with the reason.

    Raises:
        ContextInUseError: it takes passes of the target, which a reply runs, and there is no memory
            for them beside it.
        ModelError: the target cannot be run.
    """
    drafting = Drafting(spec.requested)
    with ExitStack() as stack:
        stack.callback(drafting.close)
        _fill(drafting, spec, place)
        stack.pop_all()
    return drafting


def _fill(drafting: Drafting, spec: DraftSpec, place: Place) -> None:
    info = place.target.info
    if not spec.links:
        drafting.missing = "switched off"
    elif info.rollback is not Rollback.ANY:
        drafting.missing = f"{info.name} {info.rollback_refusal}"
    else:
        calibrations = Calibrations(place.paths, place.notify)
        costs = calibrations.target(place.target, place.context)
        drafting.costs_file = calibrations.file(info)
        memory = drafting.memory = AcceptanceMemory(info.path, place.paths)
        builder = Builder(place, calibrations, memory)
        _build_links(drafting, spec, place, builder, costs)
        if spec.is_automatic:
            known = _knowledge(place, costs, calibrations, memory)
            _build_automatic(drafting, place, builder, known)
        drafting.given_up = builder.given_up
        if place.context.can_verify_tree:
            drafting.max_branches = place.context.max_branches
        if drafting.built:
            members = [built.member for built in drafting.built]
            reader = ContextReader(place.target.tokenizer.piece)
            drafting.controller = Controller(
                members,
                costs,
                info.n_vocab,
                reader=reader,
                max_branches=drafting.max_branches,
            )


def _build_links(
    drafting: Drafting, spec: DraftSpec, place: Place, builder: Builder, costs: CostModel
) -> None:
    links = list(spec.links)
    if spec.is_automatic and costs.is_steady:
        links += guessing.worthwhile(costs, automatic.WORTHWHILE)
    missing: list[str] = []
    for link in links:
        try:
            built = builder.build(link)
        except (DownloadError, DraftUnavailableError, ModelError) as error:
            if not spec.is_automatic:
                missing.append(f"{error.what}: {error.why}" if error.why else error.what)
            continue
        if not automatic.pays(built.member, costs):
            if spec.is_automatic:
                builder.drop(built)
                continue
            if link.kind is LinkKind.SELF and link.recipe is None:
                built = _with_doubt(built, place)
        drafting.built += [built, *builder.beside(built, costs)]
    drafting.missing = "; ".join(missing)


def _with_doubt(built: Built, place: Place) -> Built:
    """The target's own copy with the reason why none was expected to pay."""
    doubt = own(_target(place), place.paths).doubt
    return replace(built, note="; ".join(filter(None, [built.note, doubt])))


def _build_automatic(
    drafting: Drafting, place: Place, builder: Builder, known: Knowledge | None
) -> None:
    """Add the drafter model that is found to pay, if any is."""
    if known is None:
        return
    n_ctx = place.context.n_ctx
    room = available_memory() if place.room is None else place.room
    found = automatic.drafter(known, builder, place.paths, MemoryPlan(n_ctx, n_ctx, room))
    if found is not None:
        drafting.built += [found, *builder.beside(found, known.costs)]


def _knowledge(
    place: Place, costs: CostModel, calibrations: Calibrations, memory: AcceptanceMemory
) -> Knowledge | None:
    """What is known of drafter models; None where they should not be chosen by it.

    So it is where the costs are of a busy machine, and where the target's files are gone by now.
    """
    if not costs.is_steady:
        return None
    try:
        target = _target(place)
    except ModelError:
        return None
    return Knowledge.of(
        target, place.target, costs, calibrations, memory, place.threads, place.gpu_layers
    )


def _target(place: Place) -> Target:
    info = place.target.info
    reference = Reference(info.path.name, info.path)
    return Target(reference, facts_of(info.path, info.backend), place.target, place.backend)
