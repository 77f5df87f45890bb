"""Builds drafters made of others: cascades, votes, trees and paths."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce

from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_model import why_no_line
from app.drafting.drafter_spec import (
    Children,
    DrafterSpec,
    NodeKind,
    PathsSettings,
    TreeSettings,
    composed,
)
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.target_context import TargetContext
from backends.base import Context, DraftUnavailableError, Model
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths, TreeByTemperature
from decoding.drafters.trees import DynamicTree, PlannedDrafter
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.calibration import MOST_TOKENS
from decoding.estimation.cost import CostModel, DraftCost, TreeSize
from decoding.estimation.draft_cost import LevelCost
from decoding.planning.controller import Controller
from decoding.planning.draft_length import likeliest
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import is_flat, largest_tree, trees_may_gain

BY_RANK = (0.6, 0.15, 0.06, 0.03)
"""Prior acceptance of a node's children by rank."""


@dataclass(frozen=True, slots=True)
class Composer:
    """Composes drafters for one target and its context. The result owns its parts."""

    target: Model
    context: TargetContext
    calibrations: Calibrations
    memory: AcceptanceMemory

    def compose(self, node: DrafterSpec, parts: Sequence[DrafterHandle]) -> DrafterHandle:
        """The drafter that a node names.

        Raises:
            DraftUnavailableError: the target or a part cannot run it, or none as large.
            ModelError: an engine failed.
        """
        key = composed(node.kind, [part.key for part in parts], node.settings)
        match node.kind:
            case NodeKind.CASCADE:  # cheapest first
                return reduce(partial(self._level, node.name), parts)
            case NodeKind.TREE:
                return self._tree(node.name, key, parts[0], TreeSettings.parse(node.settings))
            case NodeKind.PATHS:
                return self._paths(node.name, key, parts[0], PathsSettings.parse(node.settings))
            case _:
                return self._vote(node.name, key, parts)

    def _level(self, name: str, below: DrafterHandle, model: DrafterHandle) -> DrafterHandle:
        """One level: a model and the drafter for it, run by a controller on that model's costs."""
        drafter, context, cost = model.member.drafter, model.context, model.member.cost
        if not isinstance(drafter, DraftModel) or not context or not cost or not model.model:
            why = why_no_line(drafter, self.target)
            raise _unavailable(name, f"{why}: only the first drafter of a cascade may")
        key = composed(NodeKind.CASCADE, [below.key, model.key])
        # It has an acceptance of its own for another model as the target.
        its_key, its_cost = f"{below.key} for {model.key}", below.member.cost
        member = ManagedDrafter(below.member.drafter, self.memory.recall(its_key), its_cost)
        below = replace(below, key=its_key, member=member)
        costs = self.calibrations.target(model.model, TargetContext(model.model, context))
        n_vocab = min(self.target.info.n_vocab, model.model.info.n_vocab)
        cascade = Cascade(
            name,
            context,
            Controller([member], costs, n_vocab),
            costs,
            n_vocab=n_vocab,
            end_tokens=self.target.tokenizer.end_tokens,
        )
        # The cost of the model alone, until its speed in the cascade is known.
        alone = DraftCost(
            cost.draw_seconds, cost.read_seconds, cost.begin_seconds, is_steady=cost.is_steady
        )
        member = ManagedDrafter(cascade, self._recalled(key, model), alone)
        return DrafterHandle(key, member, note=_notes(below, model), parts=(below, model))

    def _vote(self, name: str, key: str, parts: Sequence[DrafterHandle]) -> DrafterHandle:
        """A vote among the parts, as costly as all of them: each is asked for a token at a time."""
        drafters = [part.member.drafter for part in parts]
        drafter = Vote(name, drafters, end_tokens=self.target.tokenizer.end_tokens)
        costs = [part.member.cost for part in parts if part.member.cost]
        together = DraftCost(
            sum(cost.draw_seconds + cost.begin_seconds for cost in costs),
            sum(cost.read_seconds for cost in costs),
            is_steady=all(cost.is_steady for cost in costs),
        )
        member = ManagedDrafter(drafter, self.memory.recall(key), together if costs else None)
        return DrafterHandle(key, member, note=_notes(*parts), parts=tuple(parts))

    def _tree(
        self, name: str, key: str, part: DrafterHandle, settings: TreeSettings
    ) -> DrafterHandle:
        context = self._branching(name, part)
        if not self.context.facts.can_verify_tree:
            raise _unavailable(name, f"{self.target.info.name} {self.context.facts.tree_refusal}")
        _check(name, "nodes", settings.nodes, self._most_nodes(context))
        shape = likeliest(BY_RANK, settings.nodes, settings.depth)
        size = TreeSize(shape.depth, shape.nodes)
        n_vocab, ends = self.target.info.n_vocab, self.target.tokenizer.end_tokens
        grown = DynamicTree(name, context, size, n_vocab=n_vocab, end_tokens=ends)
        drawn = SampledTree(name, context, shape, n_vocab=n_vocab, end_tokens=ends)
        drafter: PlannedDrafter = TreeByTemperature(name, grown, drawn)
        if settings.children is not None:
            drafter = drawn if settings.children is Children.DRAWN else grown
        return self._branched(key, part, drafter, size, shape.widths, planned=drafter)

    def _most_nodes(self, drafting: Context) -> int:
        """Largest tree that the target can verify and the drafter's context can grow."""
        target = self.context.facts
        verified = min(target.max_branches, target.max_logits - 1)
        return min(MOST_TOKENS - 1, verified, drafting.max_branches)

    def _paths(
        self, name: str, key: str, part: DrafterHandle, settings: PathsSettings
    ) -> DrafterHandle:
        """A drafter of several lines, one of which is verified, by any target."""
        context, (k, length) = self._branching(name, part), (settings.k, settings.length)
        _check(name, "lines", k, context.max_branches)
        n_vocab, ends = self.target.info.n_vocab, self.target.tokenizer.end_tokens
        drafter = SeveralPaths(name, context, k, length, n_vocab=n_vocab, end_tokens=ends)
        size = TreeSize(length, length)
        return self._branched(key, part, drafter, size, [1, *[k] * (length - 1)])

    def _branching(self, name: str, part: DrafterHandle) -> Context:
        drafter, context = part.member.drafter, part.context
        if not isinstance(drafter, DraftModel) or context is None or part.member.cost is None:
            raise _unavailable(name, why_no_line(drafter, self.target))
        if not context.can_verify_tree:
            raise _unavailable(name, f"{drafter.name} {context.tree_refusal}")
        return context

    def _branched(
        self,
        key: str,
        part: DrafterHandle,
        drafter: Drafter,
        size: TreeSize,
        widths: Sequence[int],
        *,
        planned: PlannedDrafter | None = None,
    ) -> DrafterHandle:
        cost, acceptance = part.member.cost, self._recalled(key, part)
        assert cost is not None, "it runs a model"
        levels = LevelCost(cost.draw_seconds, cost.read_seconds, widths, is_steady=cost.is_steady)
        member = ManagedDrafter(drafter, acceptance, levels, tree=size, planned=planned)
        return DrafterHandle(key, member, note=part.note, parts=(part,))

    def _recalled(self, key: str, part: DrafterHandle) -> Acceptance:
        """Acceptance of a drafter; until it is measured, that of the part that it is made of.

        Tokens of a cascade have the distribution of its model's own; of a tree, as if only one
        branch could be right.
        """
        acceptance, known = self.memory.recall(key), part.member.estimates.acceptance
        if acceptance.counts():
            return acceptance
        return Acceptance(known.counts(), is_trial=known.is_trial)

    def beside(
        self, part: DrafterHandle, costs: CostModel, *, always: bool = False
    ) -> Iterator[DrafterHandle]:
        """Trees that may gain beside a drafter's lines; part keeps owning the model.

        costs: of the target's passes. always: even if no gain is expected, and paths too, for
        checks.
        """
        member, cost = part.member, part.member.cost
        if cost is None or part.context is None:
            return
        most = largest_tree(costs)
        nodes = min(most.nodes, costs.largest - 1, self._most_nodes(part.context))
        depth = min(most.depth, nodes - 1)
        if depth >= 1:  # else it is too small for a second branch
            with suppress(DraftUnavailableError):
                tree = self._tree(*_ids(NodeKind.TREE, part), part, TreeSettings(nodes, depth))
                planned, by_rank = tree.member.planned, tree.member.by_rank()
                if planned is not None and (
                    always
                    or is_flat(costs)
                    or trees_may_gain(member, by_rank, cost, costs, planned.largest)
                ):
                    yield _beside(part, tree)
        if always:
            with suppress(DraftUnavailableError):
                paths = self._paths(*_ids(NodeKind.PATHS, part), part, PathsSettings())
                yield _beside(part, paths)


def _unavailable(name: str, why: str) -> DraftUnavailableError:
    return DraftUnavailableError(f"{name} cannot draft", why)


def _check(name: str, what: str, wanted: int, most: int) -> None:
    if wanted > most:
        raise _unavailable(name, f"it has {wanted} {what}, and at most {most} can be run")


def _notes(*parts: DrafterHandle) -> str:
    return "; ".join(part.note for part in parts if part.note)


def _ids(kind: NodeKind, part: DrafterHandle) -> tuple[str, str]:
    return composed(kind, [part.member.name]), composed(kind, [part.key])


def _beside(part: DrafterHandle, form: DrafterHandle) -> DrafterHandle:
    """A form that shares the acceptance of its drafter's lines."""
    form.member.lines = part.member
    return replace(form, parts=())
