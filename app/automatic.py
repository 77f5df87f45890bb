"""What `--draft auto` adds to prompt lookup: a drafter model that is expected to pay here."""

from app import self_drafter
from app.acceptance_memory import AcceptanceMemory
from app.draft_link import SELF, Link, LinkKind
from app.tuned_recipe import Tuned
from backends.base import ModelInfo
from backends.derivation import derives
from backends.device import available_memory
from decoding.cost import CostModel
from decoding.kinds import DRAWN, band
from decoding.length import predicted_speedup
from decoding.member import Member
from models.model_files import stored_bytes
from models.recipe import Recipe
from models.reference import Reference

WORTHWHILE = 1.1
"""Predicted speedup from which a drafter is worth its memory."""

_SELF_ACCEPTANCE = 0.8
"""What a self-drafter reaches at best: a file is built only if that would pay."""

_USUAL_TEMPERATURE = 0.8


def candidates(
    info: ModelInfo,
    costs: CostModel,
    memory: AcceptanceMemory,
    room: int | None,
    found_by_tuning: Tuned | None = None,
) -> list[Link]:
    """At most one drafter model to load, the one with the highest predicted speedup.

    room is what drafters may take, in bytes, None where that is not known.

    Models that drafted for this target before are judged by what was measured then; the target's
    own copy by what tuning measured, else by its size and by the acceptance it can have at best.
    """
    plain = costs.seconds(1)
    found: list[tuple[float, Link]] = []
    for known in memory.known_drafters():
        speedup = predicted_speedup(
            lambda _, share=known.acceptance: share, costs, known.draw_seconds / plain
        )
        link = Link(LinkKind.MODEL, known.name, reference=Reference(known.name, known.path))
        if _fits(stored_bytes(known.path), room):
            found.append((speedup, link))
    own = Link(LinkKind.SELF, SELF)
    recipe = found_by_tuning.recipe if found_by_tuning else Recipe.default(info)
    share, draw_cost = _own(info, recipe, memory, plain, found_by_tuning)
    if _fits(self_drafter.added_bytes(info, recipe), room):
        found.append((predicted_speedup(lambda _: share, costs, draw_cost), own))
    speedup, link = max(found, key=lambda pair: pair[0], default=(0.0, own))
    return [link] if speedup >= WORTHWHILE else []


def pays(member: Member, costs: CostModel) -> bool:
    """Whether a drafter that was built and measured is still expected to pay."""
    if member.cost is None:
        return True
    draw_cost = member.cost.draw_seconds / costs.seconds(1)
    share = member.acceptance.mean(f"{band(_USUAL_TEMPERATURE)}:{DRAWN}", _SELF_ACCEPTANCE)
    return predicted_speedup(lambda _: share, member.costs(costs), draw_cost) >= WORTHWHILE


def _own(
    info: ModelInfo,
    recipe: Recipe,
    memory: AcceptanceMemory,
    plain: float,
    found_by_tuning: Tuned | None,
) -> tuple[float, float]:
    """Acceptance of a self-drafter, and what a token of it costs in plain steps.

    One made of loaded weights has no file to be known by, and is judged here by what it did before.
    """
    known = memory.measured(self_drafter.key(info, recipe)) if derives(info) else None
    if known is not None:
        return known[0], known[1] / plain
    if found_by_tuning is not None:
        return found_by_tuning.acceptance, found_by_tuning.draw_cost
    read = self_drafter.read_bytes(info, recipe)
    return _SELF_ACCEPTANCE, read / max(info.bytes_read_per_token, 1)


def _fits(size: int, room: int | None) -> bool:
    return 1.2 * size < (available_memory() if room is None else room)
