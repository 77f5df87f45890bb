"""Drafters that look along several branches of a drafter model: trees, and several lines."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.acceptance_memory import AcceptanceMemory
from app.branching_spec import Children, PathsSettings, TreeSettings
from app.built_drafter import Built
from app.draft_link import LinkKind
from backends.base import Context, ContextFacts, DraftUnavailableError, Model
from decoding.acceptance import Acceptance
from decoding.branching_gain import paths_may_gain, trees_may_gain
from decoding.calibration import MOST_TOKENS
from decoding.cost import CostModel, DraftCost, TreeSize
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.planned import PlannedDrafter
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.several_paths import SeveralPaths
from decoding.drafters.tree_by_temperature import TreeByTemperature
from decoding.level_cost import LevelCost
from decoding.member import Member
from decoding.tree_shape import TreeShape, likeliest

_MOST_NODES, _DEEPEST = 32, 8
"""Of trees that are planned without being asked for."""

BY_RANK = (0.6, 0.15, 0.06, 0.03)
"""How often the child of each rank is the one kept, until that is known."""


@dataclass(frozen=True, slots=True)
class Branching:
    """Makes such a drafter of one on a model, for one target and its context."""

    target: Model
    context: ContextFacts
    memory: AcceptanceMemory

    def tree(self, name: str, part: Built, settings: TreeSettings) -> Built:
        """One that drafts trees.

        Raises:
            DraftUnavailableError: the target or the drafter cannot run them, or not so large.
        """
        context, cost = self._branching(name, part)
        if not self.context.can_verify_tree:
            why = f"{self.target.info.name} {self.context.tree_refusal}"
            raise DraftUnavailableError(f"{name} cannot draft", why)
        self._check(name, "nodes", settings.nodes, self._most_nodes(context))
        shape = likeliest(BY_RANK, settings.nodes, settings.depth)
        drafter = self._tree_drafter(name, context, shape, settings)
        return self._built(part, drafter, cost, shape.widths, planned=drafter)

    def _most_nodes(self, drafting: Context) -> int:
        """Of a tree that the target verifies and the drafter's context grows."""
        target = self.context
        return min(
            MOST_TOKENS - 1, target.max_branches, target.max_logits - 1, drafting.max_branches
        )

    def beside(self, part: Built, costs: CostModel, *, always: bool = False) -> Iterator[Built]:
        """Those that may gain here beside the lines of the same drafter, which goes on holding it.

        costs: of the target's passes. always: those that may gain elsewhere too, for checks.
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
        if depth < 1:  # no room for a second branch
            return
        settings = TreeSettings(nodes, depth)
        tree = self.tree(f"{LinkKind.TREE}({part.member.name})", part, settings)
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
            paths = self.paths(f"{LinkKind.PATHS}({part.member.name})", part, settings)
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

    def paths(self, name: str, part: Built, settings: PathsSettings) -> Built:
        """One that draws several lines and sends one, which any target can verify.

        Raises:
            DraftUnavailableError: the drafter cannot run them, or not so many.
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
        return self._built(part, drafter, cost, widths)

    def _branching(self, name: str, part: Built) -> tuple[Context, DraftCost]:
        """The context of a drafter model that can run branches, and what it takes."""
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
        part: Built,
        drafter: PlannedDrafter,
        cost: DraftCost,
        widths: Sequence[int],
        *,
        planned: PlannedDrafter | None = None,
    ) -> Built:
        key = drafter.name.replace(part.member.name, part.key, 1)
        acceptance = self.memory.recall(key)
        if not acceptance.counts():  # until more is known, as if only one branch could be right
            known = part.member.acceptance
            acceptance = Acceptance(known.counts(), is_trial=known.is_trial)
        levels = LevelCost(cost.draw_seconds, cost.read_seconds, widths, is_steady=cost.is_steady)
        member = Member(drafter, acceptance, levels, tree=drafter.largest, planned=planned)
        return Built(key, member, note=part.note, parts=(part,))


def _beside(part: Built, form: Built) -> Built:
    """A form that is planned beside the lines of its drafter, and shares what is known of them."""
    form.member.lines = part.member
    return replace(form, parts=())
