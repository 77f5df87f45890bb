"""Memory that a model that streams shares with its drafters: what they leave holds weights."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from app.drafting import self_drafter
from app.drafting.choose.memory_choice import StreamContenders, best_room
from app.drafting.choose.pair_knowledge import displaced_seconds
from app.drafting.draft_spec import DraftSpec
from app.drafting.drafter_building import DrafterEnvironment
from app.drafting.drafter_spec import DrafterSpec
from app.engine.session_drafters import Drafting, build
from app.learned.calibrations import Calibrations
from app.learned.tuned_recipe import own_recipe
from app.loading.placement import MemoryPlan, drafter_context
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.process import return_freed_memory
from backends.base import DiskFullError, DraftUnavailableError, Model, ModelError, ModelInfo
from backends.engines.model_loading import hold
from models.metadata.memory_bill import facts_of
from models.reference import Reference
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts


@contextmanager
def unpinned(target: Model, lock_bytes: int) -> Generator[None]:
    """Hold none of a streamed model's weights within the block, and lock_bytes after it.

    On error they stay unpinned: the caller pins them again. Not during a pass.
    """
    hold(target, 0)  # beyond the limit of a container, Linux would end processes
    yield
    hold(target, lock_bytes)


def built(
    spec: DraftSpec, environment: DrafterEnvironment, budget: "WeightBudget | None"
) -> Drafting:
    """The drafters of a spec, in memory of their own or shared with a model that streams."""
    if budget is None:
        return build(spec, environment)
    drafting = budget.build(spec, environment)
    budget.settle(drafting, environment.target)
    return drafting


@dataclass(frozen=True, slots=True)
class WeightBudget:
    """Bytes for the held weights of a model that streams, and its drafters, together."""

    bytes: int

    @classmethod
    def of(cls, planned: MemoryPlan) -> Self | None:
        """The memory that was planned; None for a model in memory, or with drafters on a GPU."""
        if planned.lock_bytes is None or planned.split is not None:
            return None
        return cls(planned.lock_bytes + (planned.room or 0))

    def build(
        self, spec: DraftSpec, environment: DrafterEnvironment, present: Drafting | None = None
    ) -> Drafting:
        """Build the drafters of a spec in memory that the weights give up. Not during a pass.

        present: drafters in use, which keep their memory, also after an error.
        """
        target = environment.target
        held = self._left(present.memory_bytes if present else 0)
        try:
            with_room = partial(unpinned, target, held)
            spec, missing = self._made(spec, replace(environment, with_room=with_room))
            room = self._room(spec, environment, held)
            held_beside = max(held - room, 0)
            hold(target, held_beside)
            with_room = partial(unpinned, target, held_beside)
            drafting = build(spec, replace(environment, room=room, with_room=with_room))
        except BaseException:
            if present is not None:
                hold(target, held)
            raise
        if missing and spec.nodes:
            missing.append(drafting.missing)
        info, taken = target.info, drafting.memory_bytes
        seconds = displaced_seconds(info.path, info.threads, self.bytes, taken, environment.paths)
        missing = missing or [drafting.missing]
        return replace(
            drafting, missing="; ".join(filter(None, missing)), displaced_seconds=seconds or 0.0
        )

    def reconsidered(self, drafting: Drafting, target: Model) -> Drafting:
        """The drafters, without the models that gain less than weights held in their memory.

        Not during a pass.
        """
        if not drafting.displaced_seconds or drafting.are_models_worth_memory:
            return drafting
        drafting = drafting.without_models()
        return_freed_memory()
        self.settle(drafting, target)
        return drafting

    def settle(self, drafting: Drafting, target: Model) -> None:
        """Hold weights in all memory but that of the drafters. Not during a pass."""
        hold(target, self._left(drafting.memory_bytes))

    def _left(self, taken: int) -> int:
        return max(self.bytes - taken, 0)

    def _made(
        self, spec: DraftSpec, environment: DrafterEnvironment
    ) -> tuple[DraftSpec, list[str]]:
        """A spec without the drafters that cannot be made of the model, and why they cannot."""
        nodes: list[DrafterSpec] = []
        missing: list[str] = []
        for node in spec.nodes:
            try:
                for own in node.self_drafters:
                    self._make(own, environment)
                nodes.append(node)
            except (DiskFullError, DraftUnavailableError, ModelError) as error:
                missing.append(error.summary)
        return replace(spec, nodes=tuple(nodes)), missing

    def _make(self, node: DrafterSpec, environment: DrafterEnvironment) -> None:
        """Make the file of a self-drafter that could fit, unless it was made before."""
        info, paths = environment.target.info, environment.paths
        recipe = node.recipe or own_recipe(info, paths)
        if not _is_made(info, recipe, paths):
            facts = self_drafter.facts(info, recipe)
            drafter_context(node.name, facts, environment.context.facts.n_ctx, self.bytes)
            environment.notify(f"making the self-drafter {recipe.slug}")
            with environment.with_room():  # llama.cpp holds a tensor at a time
                self_drafter.own_file(info, recipe, paths, environment.notify)

    def _room(self, spec: DraftSpec, environment: DrafterEnvironment, held: int) -> int:
        info = environment.target.info
        contenders = StreamContenders(
            Reference(info.path.name, info.path),
            facts_of(info.path, info.backend),
            spec,
            SessionOptions(
                backend=environment.backend,
                threads=environment.threads,
                gpu_layers=environment.gpu_layers,
            ),
            environment.paths,
            environment.context.facts.n_ctx,
            own_recipe(info, environment.paths),
        )
        if not spec.is_automatic:
            return min(contenders.named_bytes, self.bytes)
        hold(environment.target, held)
        calibrations = Calibrations(environment.paths, environment.notify)
        costs = calibrations.target(environment.target, environment.context)
        return best_room(contenders, self.bytes, costs, held)


def _is_made(info: ModelInfo, recipe: Recipe, paths: Paths) -> bool:
    try:
        return SelfDrafts(paths.self_drafts).made(info, recipe) is not None
    except OSError:
        return False
