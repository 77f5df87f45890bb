"""The drafters of a session: built from a spec, measured, and run by one controller."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting import self_drafter
from app.drafting.choose import automatic
from app.drafting.choose.candidates import own
from app.drafting.choose.drafter_info import Target
from app.drafting.choose.pair_knowledge import Knowledge
from app.drafting.draft_spec import DraftSpec
from app.drafting.drafter_building import Builder, DrafterEnvironment, DrafterHandle
from app.drafting.drafter_spec import NodeKind
from app.drafting.gain import WORTHWHILE, pays
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.placement import MemoryPlan
from backends.base import Context, DownloadError, DraftUnavailableError, ModelError
from backends.base.model import SharedContext
from backends.hardware.host import available_memory
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.estimation.acceptance import TextKindReader
from decoding.estimation.cost import CostModel
from decoding.events import Shortfall, State
from decoding.joined_pass import SharedDrafter
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import DrafterStatus, least_shortfall, overall
from models.metadata.memory_bill import facts_of
from models.reference import Reference

_ENOUGH_STEPS = 32.0
"""Plain steps' time after which drafter models are judged by what they gained. A guess: with the
controller's initial 10 steps about 30 steps, in which a drafter that is always wrong was tried to
the end of its budget (measured on a streaming 1.1B body)."""

_NEVER_SLOWER_THAN = 0.98
"""Of decoding without them, as promised: a drafter that takes little may wait for better text."""

_LEAST_WITHOUT = 0.25
"""Least share of a plain step's time that is expected to be left with weights in the drafters'
place, whatever the disk was measured to do. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class DraftingStatus:
    """Whether drafting is on, paused or off, and why drafters are not available, paused or off."""

    state: State
    reason: str
    shortfall: Shortfall | None
    """Of the paused drafter that is closest to paying, None if none was measured."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """The drafters of a session and their controller, None where nothing drafts."""

    requested: str
    """The spec that they were built from; "" while they are still to be built."""
    missing: str = ""
    """Why requested drafters are not available."""
    reductions: tuple[str, ...] = ()
    """What was reduced to fit the drafters into memory."""
    handles: tuple[DrafterHandle, ...] = ()
    controller: Controller | None = None
    reserve: Controller | None = None
    """Controller of no drafters, for those of one reply, where no others could be built; None
    where drafting is off."""
    plain_costs: CostModel | None = None
    """Where drafting is off and several replies may be written at once; else None."""
    memory: AcceptanceMemory | None = None
    costs_file: Path | None = None
    displaced_seconds: float = 0.0
    """Seconds that a plain step of a streaming model takes longer as the drafters hold memory that
    could hold weights; 0 if unknown."""
    is_reduced: bool = False
    """Whether drafters were freed, so that a request for the same ones builds them again."""

    @property
    def costs(self) -> CostModel | None:
        """Costs of passes, which those share that draft beside each other; None if unknown."""
        controller = self.controller or self.reserve
        return controller.shared_costs if controller else self.plain_costs

    @property
    def plain_rate(self) -> float | None:
        """Tokens a second of plain decoding at the present load; None where nothing drafts."""
        return 1.0 / self.controller.costs.seconds(1) if self.controller else None

    @property
    def status(self) -> DraftingStatus:
        return self.status_with(())

    def status_with(self, ended: Sequence[DrafterStatus]) -> DraftingStatus:
        """The status with the last states of a reply's own drafters, which have left since."""
        controller = self.controller or self.reserve
        statuses = [*(controller.statuses if controller else ()), *ended]
        state, reasons = overall(statuses)
        reason = "; ".join(filter(None, [self.missing, reasons]))
        return DraftingStatus(state, reason, least_shortfall(statuses))

    @property
    def names(self) -> list[str]:
        return [handle.member.name for handle in self.handles]

    @property
    def notes(self) -> tuple[str, ...]:
        """Peculiarities of the drafters, and what was reduced to fit them into memory."""
        return (*self.reductions, *(handle.note for handle in self.handles if handle.note))

    @property
    def all_handles(self) -> Iterator[DrafterHandle]:
        for handle in self.handles:
            yield from handle.all

    @property
    def drafter_bytes(self) -> int:
        return sum(handle.model.info.weight_bytes for handle in self.all_handles if handle.model)

    @property
    def kv_bytes(self) -> int:
        return sum(handle.kv_bytes for handle in self.all_handles)

    @property
    def memory_bytes(self) -> int:
        """Memory of the drafter models: weights, caches, and what their passes need."""
        passes = sum(handle.compute_bytes for handle in self.all_handles)
        return self.drafter_bytes + self.kv_bytes + passes

    @property
    def are_models_worth_memory(self) -> bool:
        """Whether drafter models gain a streaming model more than weights in their place would.

        True until enough steps were measured.
        """
        controller = self.controller
        if controller is None or controller.recent_cost < _ENOUGH_STEPS:
            return True
        plain = controller.costs.seconds(1)
        without = max(plain - self.displaced_seconds, _LEAST_WITHOUT * plain)
        return controller.rate >= _NEVER_SLOWER_THAN * plain / without

    def without_models(self) -> "Drafting":
        """Free the drafters that take memory, and keep the others. Not during a step."""
        assert self.controller is not None
        self.remember()
        kept = tuple(handle for handle in self.handles if not _takes_memory(handle))
        freed = [handle for handle in self.handles if _takes_memory(handle)]
        models = [one.member for one in freed if not one.member.lines]
        names = ", ".join(member.name for member in models)
        gained = f"{self.controller.rate:.2f} × plain"
        why = f"{names}: freed; it gained {gained}, and weights in its memory gain more"
        for handle in reversed(freed):  # as in close
            handle.close()
        members = [handle.member for handle in kept]
        return replace(
            self,
            missing="; ".join(filter(None, [self.missing, why])),
            handles=kept,
            controller=self.controller.of(members) if members else None,
            reserve=None if members else self.controller.of(()),
            displaced_seconds=0.0,
            is_reduced=True,
        )

    @property
    def shared_contexts(self) -> Iterator[SharedContext]:
        """Contexts of drafter models in which other replies can draft too."""
        for handle in self.handles:
            drafter = handle.member.drafter
            if isinstance(drafter, DraftModel) and drafter.shared and not handle.member.dropped:
                yield drafter.shared.context

    @property
    def alone(self) -> str:
        """Which drafters serve only an answer that is alone, in words; empty if none does."""
        own: dict[Context, Context] = {one: one for one in self.shared_contexts}
        return _only_alone(one for one in self.handles if _another(one, own) is None)

    def beside(self, sequences: Mapping[Context, Context]) -> "Drafting":
        """Drafting of a reply beside others, of its own text.

        sequences: its own one of a drafter model's context; a model without one does not draft.
        """
        controller = self.controller or self.reserve
        if controller is None:
            return replace(self, handles=())
        found = [(handle, _other(handle, sequences)) for handle in self.handles]
        members = [member for _, member in found if member is not None]
        why = _only_alone(handle for handle, member in found if member is None)
        shared = controller.of(members, is_beside=True)
        is_some = bool(members)
        return replace(
            self,
            missing="; ".join(filter(None, [self.missing, why])),
            handles=(),
            controller=shared if is_some else None,
            reserve=None if is_some else shared,
            memory=None,
            costs_file=None,
        )

    def compare(self, is_comparison: bool) -> None:
        for handle in self.all_handles:
            if isinstance(handle.member.drafter, Ngram):
                handle.member.drafter.is_forgetful = is_comparison

    def remember(self) -> None:
        """Save measured acceptance; costs that have drifted are deleted, to be measured again."""
        controller = self.controller or self.reserve
        if self.memory is None or controller is None:
            return
        if self.costs_file and controller.costs.has_drifted:
            with suppress(OSError):
                self.costs_file.unlink(missing_ok=True)
        for handle in self.handles:
            member = handle.member
            is_own = member.lines is None or member.estimates.judged.judged > 0.0
            if not is_own:
                continue  # its counts are its drafter's
            self.memory.remember(handle.key, member.estimates.acceptance, handle.facts)
            for part in handle.parts:
                self._remember_part(part, self.memory)
        self.memory.save()
        for handle in self.all_handles:
            if handle.learned:
                handle.learned.keep()

    def save(self) -> None:
        """Write learned n-grams now, for the drafters that are built next."""
        for handle in self.all_handles:
            if handle.learned:
                handle.learned.save()

    def leave_out(self, chat: int | None) -> None:
        """Exclude the current chat from retrieval: the prompt holds a newer version of it."""
        for handle in self.all_handles:
            if handle.corpus:
                handle.corpus.without = chat

    def _remember_part(self, part: DrafterHandle, memory: AcceptanceMemory) -> None:
        """Save the acceptance that a part was measured to have within a composed drafter."""
        if part.member.estimates.judged.judged > 0.0:
            memory.remember(part.key, part.member.estimates.acceptance, {"name": part.member.name})
        for below in part.parts:
            self._remember_part(below, memory)

    def close(self) -> None:
        for handle in reversed(self.handles):  # threads that run a model end before it is freed
            handle.close()


def _only_alone(handles: Iterable[DrafterHandle]) -> str:
    names = ", ".join(handle.member.name for handle in handles)
    return f"{names}: only for an answer that is alone" if names else ""


def _other(handle: DrafterHandle, sequences: Mapping[Context, Context]) -> ManagedDrafter | None:
    """A drafter of the same kind for another text, with what is known of acceptance, if any."""
    drafter, member = _another(handle, sequences), handle.member
    if drafter is None:
        return None
    acceptance = member.estimates.acceptance.beside()
    return ManagedDrafter(drafter, acceptance, member.cost, prior=member.estimates.prior)


def _another(handle: DrafterHandle, sequences: Mapping[Context, Context]) -> Drafter | None:
    """A drafter of the same kind for another text; None if there is none."""
    match handle.member.drafter:
        case DraftModel(shared=SharedDrafter(context)) as model if context in sequences:
            return model.beside(sequences[context])
        case PromptLookup():
            return PromptLookup()
        case Ngram():
            return handle.member.drafter.beside()
        case Retrieval():
            return Retrieval(handle.corpus) if handle.corpus else None
        case _:
            return None


def _takes_memory(handle: DrafterHandle) -> bool:
    """Whether a drafter has a model of its own, or is another form of one that has."""
    is_form = handle.member.lines is not None
    return is_form or handle.held_bytes + handle.compute_bytes > 0


def build(spec: DraftSpec, environment: DrafterEnvironment) -> Drafting:
    """Build the drafters of a spec; unavailable ones are left out, with the reason.

    Raises:
        ContextInUseError: measuring them takes a second context, for which there is not enough
            memory while a reply uses the first.
        ModelError: the target cannot be run.
    """
    info = environment.target.info
    if not spec.nodes:
        costs = None
        if environment.sequences > 1:  # they tell how many replies at once are fastest
            calibrations = Calibrations(environment.paths, environment.notify)
            costs = calibrations.target(environment.target, environment.context)
        return Drafting(spec.requested, "switched off", plain_costs=costs)
    if why := environment.context.facts.draft_refusal:
        return Drafting(spec.requested, f"{info.name} {why}")
    with ExitStack() as stack:
        drafting = _Building(spec, environment, stack).run()
        stack.pop_all()
    return drafting


class _Building:
    """Builds the drafters of a spec. stack: to close them if that fails."""

    def __init__(self, spec: DraftSpec, environment: DrafterEnvironment, stack: ExitStack) -> None:
        self.spec, self.environment, self.stack = spec, environment, stack
        self.calibrations = Calibrations(environment.paths, environment.notify)
        self.costs = self.calibrations.target(environment.target, environment.context)
        self.memory = AcceptanceMemory(environment.target.info.path, environment.paths)
        self.builder = Builder(environment, self.calibrations, self.memory, self.costs)

    def run(self) -> Drafting:
        handles, missing = self._requested()
        if self.spec.is_automatic and (known := self._knowledge()) is not None:
            handles += self._automatic(known)
        target = self.environment.target
        controller = Controller(
            [handle.member for handle in handles],
            self.costs,
            target.info.n_vocab,
            reader=TextKindReader(target.tokenizer.piece),
        )
        return Drafting(
            requested=self.spec.requested,
            missing=missing,
            reductions=tuple(self.builder.reductions),
            handles=tuple(handles),
            controller=controller if handles else None,
            reserve=None if handles else controller,
            memory=self.memory,
            costs_file=self.calibrations.file(target.info),
        )

    def _requested(self) -> tuple[list[DrafterHandle], str]:
        """The drafters that the spec names, and why others are missing."""
        is_automatic, costs = self.spec.is_automatic, self.costs
        nodes = list(self.spec.nodes)
        if is_automatic and costs.is_steady:
            nodes += self_drafter.worthwhile(costs, WORTHWHILE)
        drafters: list[DrafterHandle] = []
        missing: list[str] = []
        for node in nodes:
            try:
                handle = self.builder.build(node)
            except (DownloadError, DraftUnavailableError, ModelError) as error:
                if not is_automatic:
                    missing.append(error.summary)
                continue
            if not pays(handle.member, costs):
                if is_automatic:
                    self.builder.drop(handle)
                    continue
                if node.kind is NodeKind.SELF and node.recipe is None:
                    doubt = own(self._target(), self.environment.paths).doubt
                    note = "; ".join(filter(None, [handle.note, doubt]))
                    handle = replace(handle, note=note)
            drafters += self._with_forms(handle)
        return drafters, "; ".join(missing)

    def _with_forms(self, handle: DrafterHandle) -> Iterator[DrafterHandle]:
        """A drafter, and the trees that its model can also draft."""
        self.stack.callback(handle.close)
        forms = list(self.builder.beside(handle, self.costs))
        for form in forms:
            self.stack.callback(form.close)
        yield handle
        yield from forms

    def _automatic(self, known: Knowledge) -> Iterator[DrafterHandle]:
        """The installed drafter model that pays most, if any does."""
        n_ctx, room = self.environment.context.facts.n_ctx, self.environment.room
        planned = MemoryPlan(n_ctx, n_ctx, available_memory() if room is None else room)
        drafter = automatic.drafter(known, self.builder, self.environment.paths, planned)
        return iter(()) if drafter is None else self._with_forms(drafter)

    def _knowledge(self) -> Knowledge | None:
        """Measurements to choose a drafter model by, None where none should be chosen.

        That is so while the machine is too busy to measure costs, if the target's files are gone,
        and where they are on another machine.
        """
        environment = self.environment
        if not self.costs.is_steady or environment.target.info.host:
            return None
        with suppress(ModelError):
            return Knowledge(
                self._target(),
                environment.target,
                self.costs,
                self.calibrations,
                self.memory,
                environment.threads,
                environment.gpu_layers,
            )
        return None

    def _target(self) -> Target:
        model, backend = self.environment.target, self.environment.backend
        path = model.info.path
        return Target(
            Reference(path.name, path), facts_of(path, model.info.backend), model, backend
        )
