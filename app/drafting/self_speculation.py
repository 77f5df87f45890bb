"""Builds jacobi and lookahead, which draft from guesses computed in the target's own passes."""

from app.drafting.drafter_spec import DrafterSpec, NodeKind
from app.learned.acceptance_memory import AcceptanceMemory
from backends.base import ContextFacts, DraftUnavailableError, ModelInfo
from decoding.drafters.lookahead import Jacobi, Lookahead, LookaheadShape
from decoding.estimation.cost import CostModel, DraftCost, TreeCosts, TreeSize
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

_JACOBI_ACCEPTANCE, _LOOKAHEAD_ACCEPTANCE = 0.06, 0.3
"""Priors, measured with the demo model."""

_SECONDS = 1e-5
"""Prior of the time to look up a guess."""


def member(
    node: DrafterSpec, info: ModelInfo, context: ContextFacts, memory: AcceptanceMemory
) -> ManagedDrafter:
    """Build the drafter of a node, for a target and its context.

    Raises:
        DraftUnavailableError: the target cannot run trees.
    """
    known, cost = memory.recall(node.name), DraftCost(_SECONDS, 0.0)
    if node.kind is NodeKind.JACOBI:
        return ManagedDrafter(Jacobi(), known, cost, prior=_JACOBI_ACCEPTANCE)
    if not context.can_verify_tree:
        why = f"{info.name} {context.tree_refusal}"
        raise DraftUnavailableError(f"{node.name} cannot draft", why)
    shape = LookaheadShape.parse(node.settings)
    drafter = Lookahead(shape, node.name)
    return ManagedDrafter(drafter, known, cost, tree=tree_size(shape), prior=_LOOKAHEAD_ACCEPTANCE)


def worthwhile(costs: CostModel, least: float) -> list[DrafterSpec]:
    """Drafters that reach a speedup at these costs, with the acceptance of the demo model."""
    tree = TreeCosts(costs, tree_size())
    if predicted_speedup(lambda _: _LOOKAHEAD_ACCEPTANCE, tree) < least:
        return []
    return [DrafterSpec(NodeKind.LOOKAHEAD, NodeKind.LOOKAHEAD)]


def tree_size(shape: LookaheadShape | None = None) -> TreeSize:
    shape = shape or LookaheadShape()
    return TreeSize(shape.depth, shape.nodes)
