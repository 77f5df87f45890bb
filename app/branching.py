"""Builds drafters that explore several branches of a drafter model: trees and paths."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.acceptance_memory import AcceptanceMemory
from app.branching_spec import Children, PathsSettings, TreeSettings
from app.built_drafter import Built
from app.draft_link import LinkKind
from app.drafter_id import composed
from backends.base import Context, ContextFacts, DraftUnavailableError, Model
from decoding.acceptance import Acceptance
from decoding.branching_gain import paths_may_gain, trees_may_gain
from decoding.calibration import MOST_TOKENS
from decoding.cost import CostModel, DraftCost, TreeSize
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.multi_draft import SeveralPaths
from decoding.drafters.planned import PlannedDrafter
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.tree_by_temperature import TreeByTemperature
from decoding.level_cost import LevelCost
from decoding.member import Member
from decoding.tree_shape import TreeShape, likeliest

_MOST_NODES, _DEEPEST = 32, 8
"""Limits of trees that the user did not request."""

BY_RANK = (0.6, 0.15, 0.06, 0.03)
"""Prior acceptance of a node's children by rank."""


@dataclass(frozen=True, slots=True)
class Branching:
    """Builds trees and paths on a drafter model, for one target and its context."""

    target: Model
    context: ContextFacts
    memory: AcceptanceMemory

    def tree(self, name: str, key: str, part: Built, settings: TreeSettings) -> Built:
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
        return self._built(key, part, drafter, cost, shape.widths, planned=drafter)

    def _most_nodes(self, drafting: Context) -> int:
        """Largest tree that the target can verify and the drafter's context can grow."""
        target = self.context
        return min(
            MOST_TOKENS - 1, target.max_branches, target.max_logits - 1, drafting.max_branches
        )

    def beside(self, part: Built, costs: CostModel, *, always: bool = False) -> Iterator[Built]:
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
        self, part: Built, context: Context, cost: DraftCost, costs: CostModel, always: bool
    ) -> Iterator[Built]:
        nodes = min(_MOST_NODES, costs.largest - 1, self._most_nodes(context))
        depth = min(_DEEPEST, nodes - 1)
        if depth < 1:  # too small for a second branch
            return
        settings = TreeSettings(nodes, depth)
        name, key = _ids(LinkKind.TREE, part)
        tree = self.tree(name, key, part, settings)
        if tree.member.planned is None:
            return
        largest = tree.member.planned.largest
        if always or trees_may_gain(part.member, tree.member.by_rank(), cost, costs, largest):
            yield _beside(part, tree)

    def _paths_beside(
        self, part: Built, cost: DraftCost, costs: CostModel, always: bool
    ) -> Iterator[Built]:
        settings = PathsSettings()
        if always or paths_may_gain(part.member, cost, costs, settings.k):
            name, key = _ids(LinkKind.PATHS, part)
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

    def paths(self, name: str, key: str, part: Built, settings: PathsSettings) -> Built:
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
        return self._built(key, part, drafter, cost, widths)

    def _branching(self, name: str, part: Built) -> tuple[Context, DraftCost]:
        """Context and cost of a drafter model, if it can run branches."""
        drafter, context, cost = part.member.drafter, part.context, part.member.cost
        if not isinstance(drafter, DraftModel) or context is None or cost is None:
            raise DraftUnavailableError(
                f"{name} cannot draft",
                f"{drafter.name} has another vocabulary than {self.target.info.name}",
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

    def _built(
        self,
        key: str,
        part: Built,
        drafter: PlannedDrafter,
        cost: DraftCost,
        widths: Sequence[int],
        *,
        planned: PlannedDrafter | None = None,
    ) -> Built:
        acceptance = self.memory.recall(key)
        if not acceptance.counts():  # until more is known, as if only one branch could be right
            known = part.member.estimates.acceptance
            acceptance = Acceptance(known.counts(), is_trial=known.is_trial)
        levels = LevelCost(cost.draw_seconds, cost.read_seconds, widths, is_steady=cost.is_steady)
        member = Member(drafter, acceptance, levels, tree=drafter.largest, planned=planned)
        return Built(key, member, note=part.note, parts=(part,))


def _ids(kind: LinkKind, part: Built) -> tuple[str, str]:
    """Name and id of a form of a drafter with the usual settings."""
    return composed(kind, [part.member.name]), composed(kind, [part.key])


def _beside(part: Built, form: Built) -> Built:
    """A form that shares the acceptance of its drafter's lines."""
    form.member.lines = part.member
    return replace(form, parts=())
