"""Drafters that let the target itself guess, beside the tokens of its own passes."""

from app.drafting.spec.drafter_node import DrafterNode, LinkKind
from app.learned.acceptance_memory import AcceptanceMemory
from backends.base import ContextFacts, DraftUnavailableError, ModelInfo
from decoding.drafters.lookahead.jacobi import Jacobi
from decoding.drafters.lookahead.lookahead import Lookahead, LookaheadShape
from decoding.estimation.cost import CostModel, DraftCost, TreeCosts, TreeSize
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

_JACOBI, _LOOKAHEAD = 0.06, 0.3
"""Acceptance until this model's is known: what the demo model showed."""

_SECONDS = 1e-5
"""What a guess takes to look up, until it was measured."""


def member(
    link: DrafterNode, info: ModelInfo, context: ContextFacts, memory: AcceptanceMemory
) -> ManagedDrafter:
    """The drafter that a link names, for a target and its context.

    Raises:
        DraftUnavailableError: the target cannot run trees.
    """
    if link.kind is LinkKind.JACOBI:
        return _jacobi(memory)
    return _lookahead(link, info, context, memory)


def _jacobi(memory: AcceptanceMemory) -> ManagedDrafter:
    known = memory.recall(LinkKind.JACOBI)
    return ManagedDrafter(Jacobi(), known, DraftCost(_SECONDS, 0.0), prior=_JACOBI)


def _lookahead(
    link: DrafterNode, info: ModelInfo, context: ContextFacts, memory: AcceptanceMemory
) -> ManagedDrafter:
    shape = LookaheadShape.parse(link.settings)
    if not context.can_verify_tree:
        raise DraftUnavailableError(
            f"{link.name} cannot draft", f"{info.name} {context.tree_refusal}"
        )
    return ManagedDrafter(
        Lookahead(shape, link.name),
        memory.recall(link.name),
        DraftCost(_SECONDS, 0.0),
        tree=tree_size(shape),
        prior=_LOOKAHEAD,
    )


def worthwhile(costs: CostModel, least: float) -> list[DrafterNode]:
    """Those that reach a speedup at what passes cost, if this model is like the demo model."""
    tree = TreeCosts(costs, tree_size())
    if predicted_speedup(lambda _: _LOOKAHEAD, tree) < least:
        return []
    return [DrafterNode(LinkKind.LOOKAHEAD, LinkKind.LOOKAHEAD)]


def tree_size(shape: LookaheadShape | None = None) -> TreeSize:
    """Of what lookahead proposes; shape: None for the usual one."""
    shape = shape or LookaheadShape()
    return TreeSize(shape.depth, shape.nodes)
