"""Lets a drafter model draft ahead while the target verifies, where nothing is shared with it."""

from dataclasses import replace

from app.drafting.drafter_handle import DrafterEnvironment, DrafterHandle
from backends.base import ModelInfo
from backends.engines.backend_selection import LLAMACPP
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.overlapping import AheadCost, DrafterThread, Overlapping


def overlapped(handle: DrafterHandle, environment: DrafterEnvironment) -> DrafterHandle:
    """The drafter, which drafts ahead where that pays, if it may run beside the target.

    That is on another device: on one, the target loses more by sharing it than drafting takes
    (docs/reference/measurements.md, Drafting while verifying). Where every form of draft is to be
    seen, it always drafts ahead.
    """
    member, context, model = handle.member, handle.context, handle.model
    drafter, cost = member.drafter, member.cost
    if not isinstance(drafter, DraftModel) or cost is None or context is None or model is None:
        return handle
    is_free = model.info.backend == LLAMACPP and not drafter.draws_on_device
    if not is_free or not context.can_roll_back or handle.is_head:
        return handle  # what reads the target's passes, or belongs to its thread, cannot
    if share_device(environment.target.info, model.info) and not environment.every_form:
        return handle
    member.drafter = overlapping = Overlapping(
        drafter,
        DrafterThread(),
        acceptance=member.estimates.of_draft,
        draw_seconds=cost.draw_seconds,
        always=environment.every_form,
    )
    member.cost = AheadCost(cost)
    return replace(handle, overlapping=overlapping)


def share_device(target: ModelInfo, drafter: ModelInfo) -> bool:
    """Whether passes of two models compete for a processor or a GPU."""
    return target.uses_processor == drafter.uses_processor
