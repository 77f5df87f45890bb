"""Drafters that need no other model: self-drafters, and guesses in the passes of the target."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.drafting.drafter_spec import DrafterSpec, NodeKind
from app.learned.acceptance_memory import AcceptanceMemory
from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends.base import ContextFacts, DraftUnavailableError, Model, ModelInfo
from backends.engines.model_loading import derive, derives
from decoding.drafters.lookahead import Jacobi, Lookahead, LookaheadShape
from decoding.estimation.cost import CostModel, DraftCost, TreeCosts, TreeSize
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter
from models.metadata.memory_bill import ModelFacts, facts_of
from models.self_draft.recipe import Recipe, kept_share, weights_made
from models.self_draft.self_draft_store import SelfDrafts
from models.tuning.recipe_search import Prospect

_GROUP = 64
"""Weights that share a scale and an offset, in a copy made in memory."""


def read_bytes(info: ModelInfo, recipe: Recipe) -> int:
    """Approximate bytes of weights read per drafted token, with the target's active experts.

    Raises:
        ModelError: the target's files cannot be read.
    """
    return round(_whole(info, recipe) * info.bytes_read_per_token / max(info.weight_bytes, 1))


def added_bytes(info: ModelInfo, recipe: Recipe) -> int:
    """Approximate bytes of weights in addition to the target's.

    Raises:
        ModelError: the target's files cannot be read.
    """
    return 0 if derives(info) and recipe.bits is None else round(_whole(info, recipe))


def _whole(info: ModelInfo, recipe: Recipe) -> float:
    if not derives(info):
        return weights_made(info.path, recipe)
    kept = kept_share(info.path, recipe.skipped_layers)
    if recipe.bits is None:
        return kept * info.weight_bytes
    number_bytes = facts_of(info.path, info.backend).attention.number_bytes
    bits = recipe.bits + 2 * 8 * number_bytes / _GROUP
    return kept * info.parameters * bits / 8


def facts(info: ModelInfo, recipe: Recipe) -> ModelFacts:
    """Facts for the memory bill of a self-drafter made from loaded weights.

    Raises:
        ModelError: the target's files cannot be read.
        UsageError: the recipe does not fit the model.
    """
    recipe.check(info.name, info.n_layers, info.active_experts)
    return replace(facts_of(info.path, info.backend), weight_bytes=added_bytes(info, recipe))


def shares_weights(info: ModelInfo, path: Path) -> bool:
    return info.streamed_bytes_per_token > 0 and path == info.path


def file_facts(info: ModelInfo, path: Path) -> ModelFacts:
    """Facts for the memory bill of a self-drafter from a file.

    Raises:
        ModelError: the file cannot be read.
    """
    of_file = facts_of(path)
    return replace(of_file, weight_bytes=0) if shares_weights(info, path) else of_file


def doubt(info: ModelInfo, best: Prospect) -> str:
    """Why no recipe is expected to pay for an untuned model, in words; "" if one may."""
    if best.can_pay:
        return ""
    share = f"{100 * best.acceptance:.0f} %"
    return (
        f"no copy of {info.name} is expected to pay: a token of the best, {best.recipe.text}, "
        f"costs {best.draw_cost:.2f} of a step, and about {share} would be accepted"
    )


def own_file(info: ModelInfo, recipe: Recipe, paths: Paths, notify: Callable[[str], None]) -> Path:
    """File of a self-drafter of a GGUF model, made if it was not before.

    Raises:
        DiskFullError: there is too little disk space.
        DraftUnavailableError: it cannot be made from this model, or written here.
        UsageError: the recipe does not fit the model.
    """
    words = f"making the self-drafter {recipe.slug}"
    return SelfDrafts(paths.self_drafts).get(
        info, recipe, lambda done, total: notify(f"{words}: {done} of {total}")
    )


def made(
    target: Model, recipe: Recipe, path: Path | None, gpu_layers: int | None, models: CheckedLoader
) -> Model:
    """Make the self-drafter of a target, with the target's engine and threads.

    path: its file, None to make it from the loaded weights. models: loads the file, and reports
    progress.

    Raises:
        DraftUnavailableError: it cannot be made from this model.
        ModelError: its file cannot be run.
        UsageError: the recipe does not fit the model.
    """
    info = target.info
    if path is not None:
        beside = target if shares_weights(info, path) else None
        experts, backend = recipe.experts, info.backend
        return models.load(path, info.threads, gpu_layers, backend, experts=experts, beside=beside)
    recipe.check(info.name, info.n_layers, info.active_experts)
    copy = f" (a copy in {recipe.bits} bits)" if recipe.bits else ""
    words = f"making the self-drafter {recipe.slug}{copy}"
    models.notify(words)
    return derive(
        target,
        recipe.slug,
        recipe.bits,
        recipe.skipped_layers,
        recipe.experts,
        progress=lambda done, total: models.notify(f"{words}: {done} of {total}"),
    )


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
