"""The drafters of a session: built from a spec, measured, and run by one controller."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting import self_speculation
from app.drafting.drafter_building import Builder, DrafterEnvironment, DrafterHandle
from app.drafting.spec.draft_spec import DraftSpec
from app.drafting.spec.drafter_node import LinkKind
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.memory_plan import MemoryPlan
from app.pairing import automatic
from app.pairing.candidate import Target
from app.pairing.candidates import own
from app.pairing.pair_knowledge import Knowledge
from backends.base import DownloadError, DraftUnavailableError, ModelError, Rollback
from backends.hardware.host import available_memory
from decoding.drafters.ngram.ngram import Ngram
from decoding.estimation.cost import CostModel
from decoding.estimation.text_kind import TextKindReader
from decoding.planning.controller import Controller
from decoding.planning.parking import State, overall
from models.metadata.model_facts import facts_of
from models.reference import Reference


@dataclass(frozen=True, slots=True)
class Drafting:
    """The drafters of a session and their controller, None where nothing drafts."""

    requested: str
    """The spec that they were built from."""
    missing: str = ""
    """Why requested drafters are not available."""
    reductions: tuple[str, ...] = ()
    """What was reduced to fit the drafters into memory."""
    built: tuple[DrafterHandle, ...] = ()
    controller: Controller | None = None
    memory: AcceptanceMemory | None = None
    costs_file: Path | None = None

    @property
    def state(self) -> State:
        """Whether drafting is on, parked or off."""
        return overall(self.controller.statuses)[0] if self.controller else State.OFF

    @property
    def reason(self) -> str:
        """Why drafters are not available, parked or off."""
        reasons = overall(self.controller.statuses)[1] if self.controller else ""
        return "; ".join(filter(None, [self.missing, reasons]))

    @property
    def names(self) -> list[str]:
        """Names of the drafters in order of preference."""
        return [built.member.name for built in self.built]

    @property
    def notes(self) -> tuple[str, ...]:
        """Peculiarities of the drafters, and what was reduced to fit them into memory."""
        return (*self.reductions, *(built.note for built in self.built if built.note))

    @property
    def all_built(self) -> Iterator[DrafterHandle]:
        """Every drafter and, recursively, its parts."""
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
        """Disable learning from replies while replies to one prompt are compared."""
        for built in self.all_built:
            if isinstance(built.member.drafter, Ngram):
                built.member.drafter.is_forgetful = is_comparison

    def remember(self) -> None:
        """Save measured acceptance; costs that have drifted are deleted, to be measured again."""
        if self.memory is None or self.controller is None:
            return
        if self.costs_file and self.controller.costs.has_drifted:
            with suppress(OSError):
                self.costs_file.unlink(missing_ok=True)
        for built in self.built:
            member = built.member
            if member.lines is not None and member.estimates.judged.judged == 0.0:
                continue  # its counts are those of another drafter
            self.memory.remember(built.key, member.estimates.acceptance, built.facts)
            for part in built.parts:
                self._remember_part(part, self.memory)
        self.memory.save()
        for built in self.all_built:
            if built.learned:
                built.learned.keep()

    def save(self) -> None:
        """Write learned n-grams now, for the drafters that are built next."""
        for built in self.all_built:
            if built.learned:
                built.learned.save()

    def leave_out(self, chat: int | None) -> None:
        """Exclude the current chat from retrieval: the prompt holds a newer version of it."""
        for built in self.all_built:
            if built.corpus:
                built.corpus.without = chat

    def _remember_part(self, part: DrafterHandle, memory: AcceptanceMemory) -> None:
        """What was learned of a drafter by one that it is a part of."""
        if part.member.estimates.judged.judged > 0.0:
            memory.remember(part.key, part.member.estimates.acceptance, {"name": part.member.name})
        for below in part.parts:
            self._remember_part(below, memory)

    def close(self) -> None:
        """Free the drafter models, and save learned n-grams."""
        for built in self.built:
            built.close()


def build(spec: DraftSpec, place: DrafterEnvironment) -> Drafting:
    """Build the drafters of a spec; unavailable ones are left out, with the reason.

    Raises:
        ContextInUseError: measuring them takes a second context, for which there is not enough
            memory while a reply uses the first.
        ModelError: the target cannot be run.
    """
    info = place.target.info
    if not spec.links:
        return Drafting(spec.requested, "switched off")
    if info.rollback is not Rollback.ANY:
        return Drafting(spec.requested, f"{info.name} {info.rollback_refusal}")
    calibrations = Calibrations(place.paths, place.notify)
    costs = calibrations.target(place.target, place.context)
    memory = AcceptanceMemory(info.path, place.paths)
    builder = Builder(place, calibrations, memory)
    with ExitStack() as stack:
        built, missing = _requested(spec, place, builder, costs, stack)
        if spec.is_automatic:
            known = _knowledge(place, costs, calibrations, memory)
            built += _automatic(place, builder, known, stack) if known else []
        controller = _controller(built, place, costs) if built else None
        stack.pop_all()
    return Drafting(
        requested=spec.requested,
        missing=missing,
        reductions=tuple(builder.reductions),
        built=tuple(built),
        controller=controller,
        memory=memory,
        costs_file=calibrations.file(info),
    )


def _controller(
    built: Sequence[DrafterHandle], place: DrafterEnvironment, costs: CostModel
) -> Controller:
    context = place.context
    return Controller(
        [one.member for one in built],
        costs,
        place.target.info.n_vocab,
        reader=TextKindReader(place.target.tokenizer.piece),
        max_branches=context.max_branches if context.can_verify_tree else 1,
    )


def _requested(
    spec: DraftSpec, place: DrafterEnvironment, builder: Builder, costs: CostModel, stack: ExitStack
) -> tuple[list[DrafterHandle], str]:
    """Build the drafters that a spec names; returns them, and why others are missing.

    stack: closes them.
    """
    links = list(spec.links)
    if spec.is_automatic and costs.is_steady:
        links += self_speculation.worthwhile(costs, automatic.WORTHWHILE)
    drafters: list[DrafterHandle] = []
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
        drafters += _with_forms(built, builder, costs, stack)
    return drafters, "; ".join(missing)


def _with_forms(
    built: DrafterHandle, builder: Builder, costs: CostModel, stack: ExitStack
) -> Iterator[DrafterHandle]:
    """A drafter and the trees and paths that its model can draft too, to be closed by stack."""
    stack.callback(built.close)
    yield built
    for form in builder.beside(built, costs):
        stack.callback(form.close)
        yield form


def _with_doubt(built: DrafterHandle, place: DrafterEnvironment) -> DrafterHandle:
    """A self-drafter with a note why no self-drafter is expected to pay."""
    doubt = own(_target(place), place.paths).doubt
    return replace(built, note="; ".join(filter(None, [built.note, doubt])))


def _automatic(
    place: DrafterEnvironment, builder: Builder, known: Knowledge, stack: ExitStack
) -> Iterator[DrafterHandle]:
    """Build the installed drafter model that pays most, if any does."""
    n_ctx = place.context.n_ctx
    room = available_memory() if place.room is None else place.room
    drafter = automatic.drafter(known, builder, place.paths, MemoryPlan(n_ctx, n_ctx, room))
    if drafter is not None:
        yield from _with_forms(drafter, builder, known.costs, stack)


def _knowledge(
    place: DrafterEnvironment,
    costs: CostModel,
    calibrations: Calibrations,
    memory: AcceptanceMemory,
) -> Knowledge | None:
    """Measurements to choose a drafter model by, None where none should be chosen.

    That is so while the machine is too busy to measure costs, and if the target's files are gone.
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


def _target(place: DrafterEnvironment) -> Target:
    info = place.target.info
    reference = Reference(info.path.name, info.path)
    return Target(reference, facts_of(info.path, info.backend), place.target, place.backend)
