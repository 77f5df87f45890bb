"""Builds drafters made of others: cascades, votes, trees and paths."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_model import why_no_line
from app.drafting.drafter_spec import Children, NodeKind, PathsSettings, TreeSettings, composed
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.target_context import TargetContext
from backends.base import Context, ContextFacts, DraftUnavailableError, Model
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.sampled_tree import SampledTree, TreeByTemperature
from decoding.drafters.several_paths import SeveralPaths
from decoding.drafters.trees import PlannedDrafter, TreeShape
from decoding.drafters.vote import Vote
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.calibration import MOST_TOKENS
from decoding.estimation.cost import CostModel, DraftCost, TreeSize
from decoding.estimation.draft_cost import LevelCost
from decoding.planning.branching_gain import (
    is_flat,
    largest_tree,
    paths_may_gain,
    trees_may_gain,
)
from decoding.planning.controller import Controller
from decoding.planning.draft_length import likeliest
from decoding.planning.managed_drafter import ManagedDrafter


@dataclass(frozen=True, slots=True)
class Composer:
    """Composes drafters for one target. The result owns its parts."""

    target: Model
    calibrations: Calibrations
    memory: AcceptanceMemory

    def cascade(self, name: str, parts: Sequence[DrafterHandle]) -> DrafterHandle:
        """A cascade of the parts, cheapest first; a free one also drafts its tail.

        Raises:
            DraftUnavailableError: a part after the first has another vocabulary.
            ModelError: an engine failed.
        """
        below, *models = parts
        tail = None if below.member.cost else below.member.drafter
        for model in models:
            below = self._level(name, below, model, tail)
        return below

    def _level(
        self, name: str, below: DrafterHandle, model: DrafterHandle, tail: Drafter | None
    ) -> DrafterHandle:
        """One level: a model and the drafter for it, run by a controller on that model's costs."""
        drafter, context, cost = model.member.drafter, model.context, model.member.cost
        if not isinstance(drafter, DraftModel) or not context or not cost or not model.model:
            raise DraftUnavailableError(
                f"{name} cannot draft",
                f"{why_no_line(drafter, self.target)}: only the first drafter of a cascade may",
            )
        key = composed(NodeKind.CASCADE, [below.key, model.key])
        below = self._for(model, below)
        costs = self.calibrations.target(model.model, TargetContext(model.model, context))
        n_vocab = min(self.target.info.n_vocab, model.model.info.n_vocab)
        cascade = Cascade(
            name,
            context,
            Controller([below.member], costs, n_vocab),
            costs,
            n_vocab=n_vocab,
            tail=tail,
            end_tokens=self.target.tokenizer.end_tokens,
        )
        acceptance = self.memory.recall(key)
        if not acceptance.counts():  # its tokens have the distribution of the model's own
            known = model.member.estimates.acceptance
            acceptance = Acceptance(known.counts(), is_trial=known.is_trial)
        # The cost of the model alone, until its speed in the cascade is known.
        alone = DraftCost(
            cost.draw_seconds, cost.read_seconds, cost.begin_seconds, is_steady=cost.is_steady
        )
        return DrafterHandle(
            key,
            ManagedDrafter(cascade, acceptance, alone),
            note=_notes(below, model),
            parts=(below, model),
        )

    def _for(self, model: DrafterHandle, below: DrafterHandle) -> DrafterHandle:
        """A drafter with acceptance of its own for another model as the target."""
        key = f"{below.key} for {model.key}"
        member = ManagedDrafter(below.member.drafter, self.memory.recall(key), below.member.cost)
        return replace(below, key=key, member=member)

    def vote(self, name: str, key: str, parts: Sequence[DrafterHandle]) -> DrafterHandle:
        """A vote among the parts, as costly as all of them; key: its id."""
        drafter = Vote(
            name,
            [part.member.drafter for part in parts],
            end_tokens=self.target.tokenizer.end_tokens,
        )
        costs = [part.member.cost for part in parts if part.member.cost]
        together = DraftCost(  # each is asked for a token at a time
            sum(cost.draw_seconds + cost.begin_seconds for cost in costs),
            sum(cost.read_seconds for cost in costs),
            is_steady=all(cost.is_steady for cost in costs),
        )
        member = ManagedDrafter(drafter, self.memory.recall(key), together if costs else None)
        return DrafterHandle(key, member, note=_notes(*parts), parts=tuple(parts))


def _notes(*parts: DrafterHandle) -> str:
    return "; ".join(part.note for part in parts if part.note)


BY_RANK = (0.6, 0.15, 0.06, 0.03)
"""Prior acceptance of a node's children by rank."""


@dataclass(frozen=True, slots=True)
class Branching:
    """Builds trees and paths on a drafter model, for one target and its context."""

    target: Model
    context: ContextFacts
    memory: AcceptanceMemory

    def tree(
        self, name: str, key: str, part: DrafterHandle, settings: TreeSettings
    ) -> DrafterHandle:
        """A drafter of trees; key: its id.

        Raises:
            DraftUnavailableError: the target or the drafter cannot run trees, or none as large.
        """
        context, cost = self._branching(name, part)
        if not self.context.can_verify_tree:
            why = f"{self.target.info.name} {self.context.tree_refusal}"
            raise DraftUnavailableError(f"{name} cannot draft", why)
        self._check(name, "nodes", settings.nodes, self._most_nodes(context))
        shape = likeliest(BY_RANK, settings.nodes, settings.depth)
        drafter = self._tree_drafter(name, context, shape, settings)
        return self._derived(key, part, drafter, cost, shape.widths, planned=drafter)

    def _most_nodes(self, drafting: Context) -> int:
        """Largest tree that the target can verify and the drafter's context can grow."""
        target = self.context
        return min(
            MOST_TOKENS - 1, target.max_branches, target.max_logits - 1, drafting.max_branches
        )

    def beside(
        self, part: DrafterHandle, costs: CostModel, *, always: bool = False
    ) -> Iterator[DrafterHandle]:
        """Trees and paths that may gain beside a drafter's lines; part keeps owning the model.

        costs: of the target's passes. always: even if no gain is expected, for checks.
        """
        if part.member.cost is None or part.context is None:
            return
        with suppress(DraftUnavailableError):
            yield from self._tree_beside(part, part.context, part.member.cost, costs, always)
        with suppress(DraftUnavailableError):
            yield from self._paths_beside(part, part.member.cost, costs, always)

    def _tree_beside(
        self, part: DrafterHandle, context: Context, cost: DraftCost, costs: CostModel, always: bool
    ) -> Iterator[DrafterHandle]:
        most = largest_tree(costs)
        nodes = min(most.nodes, costs.largest - 1, self._most_nodes(context))
        depth = min(most.depth, nodes - 1)
        if depth < 1:  # too small for a second branch
            return
        settings = TreeSettings(nodes, depth)
        name, key = _ids(NodeKind.TREE, part)
        tree = self.tree(name, key, part, settings)
        if tree.member.planned is None:
            return
        largest = tree.member.planned.largest
        is_wanted = always or is_flat(costs)
        if is_wanted or trees_may_gain(part.member, tree.member.by_rank(), cost, costs, largest):
            yield _beside(part, tree)

    def _paths_beside(
        self, part: DrafterHandle, cost: DraftCost, costs: CostModel, always: bool
    ) -> Iterator[DrafterHandle]:
        settings = PathsSettings()
        if always or paths_may_gain(part.member, cost, costs, settings.k):
            name, key = _ids(NodeKind.PATHS, part)
            paths = self.paths(name, key, part, settings)
            yield _beside(part, paths)

    def _tree_drafter(
        self, name: str, context: Context, shape: TreeShape, settings: TreeSettings
    ) -> PlannedDrafter:
        n_vocab, end_tokens = self.target.info.n_vocab, self._end_tokens
        size = TreeSize(shape.depth, shape.nodes)
        grown = DynamicTree(name, context, size, n_vocab=n_vocab, end_tokens=end_tokens)
        drawn = SampledTree(name, context, shape, n_vocab=n_vocab, end_tokens=end_tokens)
        match settings.children:
            case Children.LIKELIEST:
                return grown
            case Children.DRAWN:
                return drawn
            case None:
                return TreeByTemperature(name, grown, drawn)

    @property
    def _end_tokens(self) -> frozenset[int]:
        return self.target.tokenizer.end_tokens

    def paths(
        self, name: str, key: str, part: DrafterHandle, settings: PathsSettings
    ) -> DrafterHandle:
        """A drafter of several lines, one of which is verified, by any target; key: its id.

        Raises:
            DraftUnavailableError: the drafter cannot run several paths, or not as many.
        """
        context, cost = self._branching(name, part)
        self._check(name, "lines", settings.k, context.max_branches)
        drafter = SeveralPaths(
            name,
            context,
            settings.k,
            settings.length,
            n_vocab=self.target.info.n_vocab,
            end_tokens=self._end_tokens,
        )
        widths = [1, *(settings.k for _ in range(1, settings.length))]
        return self._derived(key, part, drafter, cost, widths)

    def _branching(self, name: str, part: DrafterHandle) -> tuple[Context, DraftCost]:
        drafter, context, cost = part.member.drafter, part.context, part.member.cost
        if not isinstance(drafter, DraftModel) or context is None or cost is None:
            raise DraftUnavailableError(
                f"{name} cannot draft",
                why_no_line(drafter, self.target),
            )
        if not context.can_verify_tree:
            why = f"{drafter.name} {context.tree_refusal}"
            raise DraftUnavailableError(f"{name} cannot draft", why)
        return context, cost

    @staticmethod
    def _check(name: str, what: str, wanted: int, most: int) -> None:
        if wanted > most:
            raise DraftUnavailableError(
                f"{name} cannot draft", f"it has {wanted} {what}, and at most {most} can be run"
            )

    def _derived(
        self,
        key: str,
        part: DrafterHandle,
        drafter: PlannedDrafter,
        cost: DraftCost,
        widths: Sequence[int],
        *,
        planned: PlannedDrafter | None = None,
    ) -> DrafterHandle:
        acceptance = self.memory.recall(key)
        if not acceptance.counts():  # until it is measured, as if only one branch could be right
            known = part.member.estimates.acceptance
            acceptance = Acceptance(known.counts(), is_trial=known.is_trial)
        levels = LevelCost(cost.draw_seconds, cost.read_seconds, widths, is_steady=cost.is_steady)
        member = ManagedDrafter(drafter, acceptance, levels, tree=drafter.largest, planned=planned)
        return DrafterHandle(key, member, note=part.note, parts=(part,))


def _ids(kind: NodeKind, part: DrafterHandle) -> tuple[str, str]:
    return composed(kind, [part.member.name]), composed(kind, [part.key])


def _beside(part: DrafterHandle, form: DrafterHandle) -> DrafterHandle:
    """A form that shares the acceptance of its drafter's lines."""
    form.member.lines = part.member
    return replace(form, parts=())
