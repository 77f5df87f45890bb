"""Builds drafters composed of others: cascades and votes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.drafting.drafter_handle import DrafterHandle
from app.drafting.drafter_id import composed
from app.drafting.one_by_one import why_no_line
from app.drafting.spec.drafter_node import NodeKind
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.calibrations import Calibrations
from app.loading.target_context import TargetContext
from backends.base import DraftUnavailableError, Model
from decoding.draft import Drafter
from decoding.drafters.composed.cascade import Cascade
from decoding.drafters.composed.vote import Vote
from decoding.drafters.model.draft_model import DraftModel
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import DraftCost
from decoding.planning.controller import Controller
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
