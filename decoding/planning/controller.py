"""The controller: decides at every step which drafter drafts, and how much.

Free drafters are polled as often as that pays; their proposals are scored against the model's own
tokens, sent or not. A drafter model is asked only when it is expected to pay, and after each of its
tokens whether one more would.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, refusal_of_all
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.acceptance import TextKindReader
from decoding.estimation.cost import CostModel
from decoding.events import Cause, Decision, EmptyDraft, Step, total_seconds
from decoding.planning.free_drafting import FreeDrafting, Offer, Proposed, best_of_each_length
from decoding.planning.kept_width import KeptWidth
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.model_draft_planner import DraftPlan, ModelDraft, ModelDraftPlanner, Probing
from decoding.planning.pausing import DrafterStatus, drafter_status, is_promising
from decoding.planning.polling import Polling
from decoding.planning.risk_budget import RiskBudget
from decoding.sampling.sampler import Sampler

BASELINE_EVERY = 64
"""Drafted steps in a row after which one is plain, which keeps the plain rate measured. At most
1.6 % of steps are affected; the number is a guess, not measured."""

_MOST_UNLEARNED = 16
"""Most steps whose observation is deferred."""

_RATE_MEMORY = 60.0
"""Half-life of the present rate, in plain steps. A guess; not measured."""

_INITIAL_STEPS = 10.0
"""Plain steps that the present rate starts from, so that one step cannot swing it. A guess; not
measured."""

_OWN_BACKLOG = 2
"""Most tokens that a drafter has to read after a draft of its own: the last of it, and the next."""


@dataclass(slots=True, eq=False)  # freezing takes time at each step
class _Selection:
    """The draft selected for a step, and why.

    model_draft: where the draft comes from a drafter model. is_probe: whether it is a retry of a
    paused drafter, which is paid from the budget for probes.
    """

    cause: Cause
    draft: Draft = NO_DRAFT
    gain: float = 0.0
    model_draft: ModelDraft | None = None
    is_probe: bool = False


_NO_DRAFT_PAYS = _Selection(Cause.PAYS_NOT)


@dataclass(slots=True, eq=False)  # freezing takes time at each step
class _Pending:
    """A selection whose outcome is not known yet.

    learners: the drafters that learn from the outcome. refused: the first token of a draft that
    the risk budget did not cover. promising: the drafters of which a draft would pay, affordable or
    not. proposals: by drafter, sent or not.
    """

    selection: _Selection = _NO_DRAFT_PAYS
    learners: Sequence[ManagedDrafter] = ()
    refused: int | None = None
    promising: Sequence[ManagedDrafter] = ()
    proposals: Mapping[ManagedDrafter, Draft] = field(default_factory=dict[ManagedDrafter, Draft])


_NOTHING_PENDING = _Pending()


Plans = Mapping[ManagedDrafter, DraftPlan | Cause]
"""What is planned of each drafter model at a step, or why nothing is."""


class Controller(Drafter):
    """A drafter that combines drafters and learns from each step which of them pay.

    costs: of the target's passes. n_vocab: of the target. reader: classifies the text being
    written, as acceptance depends on its kind.
    """

    def __init__(
        self,
        drafters: Sequence[ManagedDrafter],
        costs: CostModel,
        n_vocab: int,
        clock: Callable[[], float] = time.perf_counter,
        reader: TextKindReader | None = None,
    ) -> None:
        self.name = ",".join(managed.name for managed in drafters)
        self.drafters = tuple(drafters)
        self.decision = Decision(Cause.PAYS_NOT)
        """Decision of the last step."""
        self._costs = costs
        self._clock = clock
        self.n_vocab = n_vocab
        self.reader = reader
        self._read_until = 0
        self._text_kind = ""
        self._width = KeptWidth(costs)
        self._budget = RiskBudget(costs.change(1))
        self._probing = Probing(costs)
        self._recent_tokens = self._recent_cost = _INITIAL_STEPS
        self._since_plain = 0
        self._costly = [managed for managed in drafters if managed.cost is not None]
        self._polling = Polling(drafters, costs)
        self._free = FreeDrafting(costs, n_vocab)
        self._planner = ModelDraftPlanner(costs, n_vocab, clock)
        self._pending = _NOTHING_PENDING
        self._unlearned: list[Step] = []
        """Steps at which no drafter was asked. They change nothing until one is. Code runs slowly
        right after a pass, which empties the caches; learning them in one go takes a fifth of the
        time."""

    def of(self, drafters: Sequence[ManagedDrafter], *, is_beside: bool = False) -> "Controller":
        """A controller of other drafters of the same target, with the costs learned so far.

        is_beside: whether for another text beside this one's, where trees are not verified.
        """
        reader = self.reader.another() if self.reader and is_beside else self.reader
        return Controller(drafters, self.costs, self.n_vocab, self._clock, reader)

    def add(self, drafters: Sequence[ManagedDrafter]) -> None:
        """Let free drafters take part that exist for one reply, before it begins with this one.

        Where they and others propose the same, theirs is sent.
        """
        self.drafters = (*self.drafters, *drafters)
        self._polling.add(drafters)
        self._free.add(drafters)

    def remove(self, drafters: Sequence[ManagedDrafter]) -> None:
        """Let drafters that were added take part no more. Not between a draft and its outcome."""
        self._catch_up()
        self._pending = _NOTHING_PENDING
        self.drafters = tuple(managed for managed in self.drafters if managed not in drafters)
        self._polling.remove(drafters)
        self._free.remove(drafters)

    @property
    def shared_costs(self) -> CostModel:
        """Those that all controllers of the target share; the latest plain steps may lack."""
        return self._costs

    @property
    def costs(self) -> CostModel:
        """Cost of the target's passes, as learned so far."""
        self._catch_up()
        return self._costs

    @property
    def statuses(self) -> list[DrafterStatus]:
        """State of each drafter, with the reason if it is not on."""
        self._catch_up()
        return [drafter_status(managed, self._costs) for managed in self.drafters]

    @property
    def rate(self) -> float:
        """Recent tokens per plain step's time, at least 1, the rate of plain decoding.

        That where passes are shared: what all gain together counts then, and is seen elsewhere.
        """
        self._catch_up()
        if self._costs.is_shared:
            return 1.0
        return max(1.0, self._recent_tokens / self._recent_cost)

    @property
    def recent_cost(self) -> float:
        """Time that the rate stands for, in plain steps: the more, the surer it is."""
        self._catch_up()
        return self._recent_cost

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._catch_up()
        self._pending = _NOTHING_PENDING
        self._budget.begin()
        self._width.begin()
        self._costs.begin()
        self._hold(history)
        settings = sampler.settings
        self._polling.begin()
        self._free.begin(sampler)
        if self.reader is not None:
            self.reader.begin()
            self._read_until = len(history)
        for managed in self._active():
            managed.begin(settings.temperature, settings.lossy_in_effect)
            managed.guarded(lambda managed=managed: managed.drafter.begin(history, sampler), None)
            managed.can_draft(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        if self._costs.is_shared:  # others wait meanwhile: only when it is to draft
            return
        for managed in self._active():
            if is_promising(managed, self._costs):
                yield from managed.read(history)

    def read_ahead(self, history: Sequence[int], seconds: float) -> Iterator[int]:
        """Let promising drafter models read what the next reply's history begins with.

        They read in pieces that take about so many seconds; yields after each. Nothing else of the
        reply begins, and nothing is learned.
        """
        for managed in self._active():
            if managed.cost is not None and is_promising(managed, self._costs):
                price = managed.cost.read_seconds
                most = int(seconds / price) if price > 0.0 else len(history)
                yield from managed.read_ahead(history, max(most, 1))

    def refusal(self, history: Sequence[int]) -> str:
        return refusal_of_all([managed.drafter for managed in self._active()], history)

    def commit(self, history: Sequence[int]) -> None:
        for managed in self._active():
            managed.commit(history)

    def _active(self) -> list[ManagedDrafter]:
        return [managed for managed in self.drafters if not managed.dropped]

    def _hold(self, history: Sequence[int]) -> None:
        if not self._costs.is_shared:  # else the passes attend to what all hold
            self._costs.hold(len(history))

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._hold(history)
        free, able, limit = self._participants(history, min(limit, self._costs.largest - 1))
        learners = [*free, *able]
        for managed in learners:
            managed.estimates.acceptance.is_shared = self._costs.is_shared
        if not learners and self._width.rows == 1:
            self._pending = _NOTHING_PENDING
            if self.decision.cause is not Cause.PAYS_NOT:
                self.decision = Decision(Cause.PAYS_NOT, context=self._text_kind)
            return NO_DRAFT
        self._catch_up()
        self._read_text_kind(history, learners)
        proposed = self._free.poll(free, history, limit)
        refused = self._keep_width(proposed, able, history, limit)
        try:
            affordable = math.inf if self._costs.is_shared else self._budget.affordable
            offer = self._free.best(proposed, self.rate, affordable)
            plans: Plans = {}
            if limit < 1 or self._must_be_plain:
                selection = _Selection(Cause.PAYS_NOT if limit < 1 else Cause.MEASURED)
            else:
                plan, rate, budget = self._planner.plan, self.rate, self._budget
                plans = {one: plan(one, history, limit, rate, budget) for one in able}
                selection = self._select(offer, plans, history, limit)
            selection = self._filled(selection)
        finally:
            self._costs.kept = 0
            self._budget.reserved = 0.0
        proposals = {managed: draft for managed, draft, _ in proposed}
        if selection.model_draft is not None:
            proposals[selection.model_draft.plan.managed] = selection.draft
        refused = offer.refused if offer.refused is not None else refused
        promising = [*offer.promising, *self._promising(plans)]
        self._pending = _Pending(selection, learners, refused, promising, proposals)
        draft = selection.draft
        self.decision = Decision(
            selection.cause, draft.drafter, draft.drafted, selection.gain, self._text_kind
        )
        return draft

    def _participants(
        self, history: Sequence[int], limit: int
    ) -> tuple[Sequence[ManagedDrafter], Sequence[ManagedDrafter], int]:
        """The free drafters that are due, the others that can draft too, and the most tokens."""
        due = self._polling.due()
        able = [one for one in due if one.cost is not None and one.can_draft(history)]
        if self._costs.is_shared:  # others would wait for a draft that theirs cannot join
            able = [
                one for one in able if isinstance(one.drafter, DraftModel) and one.drafter.shared
            ]
        return [one for one in due if one.cost is None], able, limit

    def _keep_width(
        self,
        proposed: Sequence[Proposed],
        costly: Sequence[ManagedDrafter],
        history: Sequence[int],
        limit: int,
    ) -> int | None:
        """Set the width of this step where a change costs time.

        Returns the first token of a free draft that a width would pay for which is not affordable.
        """
        if not self._costs.changes or limit < 1:
            return None
        worth = [
            self._planner.worth(managed, history, limit, self.rate)
            for managed in costly
            if managed.planned is None or managed.shared_lines is None  # whose width trees have
        ]
        width = self._costs.kept = self._width.choose(
            [expected for expected, _ in worth],
            self.rate,
            self._budget.affordable,
            [cautious for _, cautious in worth],
            self._budget.affordable_if_proven,
            best_of_each_length(proposed),
        )
        self._budget.reserved = self._width.at_risk(width)
        return proposed[0][1].tokens[0] if self._width.is_refused and proposed else None

    def _filled(self, selection: _Selection) -> _Selection:
        """A selection whose pass is as wide as the kept width, or the next that its draft needs."""
        if not self._costs.kept:
            return selection
        draft = selection.draft
        rows = max(self._costs.kept, self._costs.width(1 + len(draft)))
        return replace(selection, draft=replace(draft, padding=rows - 1 - len(draft)))

    def _read_text_kind(self, history: Sequence[int], learners: Sequence[ManagedDrafter]) -> None:
        """Classify the text that the next token belongs to."""
        if self.reader is not None:
            self.reader.feed(history[self._read_until :])
            self._read_until = len(history)
            self._text_kind = self.reader.current
            for managed in learners:
                managed.estimates.text_kind = self._text_kind

    @property
    def _must_be_plain(self) -> bool:
        """Whether the costs need a plain step to be confirmed."""
        if self._costs.changes:  # it would cost two changes of width
            return False
        return self._since_plain >= BASELINE_EVERY or self._costs.is_doubtful

    def _promising(self, plans: Plans) -> Sequence[ManagedDrafter]:
        """The drafter models of which a draft would pay, at another width too."""
        if self._costs.changes and self._width.may_pay:
            return [*plans]
        return [one for one, plan in plans.items() if plan is not Cause.PAYS_NOT]

    def _select(
        self,
        offer: Offer,
        plans: Plans,
        history: Sequence[int],
        limit: int,
    ) -> _Selection:
        """The draft with the highest gain; if none pays, a probe or a plain step."""
        paying = [plan for plan in plans.values() if isinstance(plan, DraftPlan)]
        empty_drafts: list[EmptyDraft] = []
        for plan in sorted(paying, key=lambda plan: plan.gain, reverse=True):
            if plan.gain <= offer.gain - self._displaced(plan, offer, history):
                break
            if (plan := self._planner.beside(plan, history)) is None:
                continue
            made = self._planner.make(plan, history)
            if made.draft.tokens:
                return self._paying(made.draft, plan.gain, empty_drafts, made)
            empty_drafts.append(made.empty_draft)
        if offer.gain > 0.0:
            return self._paying(offer.draft, offer.gain, empty_drafts)
        if empty_drafts:
            return _silent(*empty_drafts)
        is_risky = offer.refused is not None or Cause.TOO_RISKY in plans.values()
        plain = _Selection(Cause.TOO_RISKY) if is_risky else _NO_DRAFT_PAYS
        if self._costs.is_shared:  # what may pay was offered already
            return plain
        return self._probe([*plans], history, limit) or plain

    def _displaced(self, plan: DraftPlan, offer: Offer, history: Sequence[int]) -> float:
        """What the time is worth in which a drafter would read what a free one drafted.

        Nothing once it has more to read than its own drafts leave: others draft in its place.
        """
        if not self._costs.changes or plan.managed.drafter.backlog(history) > _OWN_BACKLOG:
            return 0.0
        reading = plan.cost.seconds(0, 1 + round(offer.expected))
        return plan.rate * reading / self._costs.seconds(1)

    def _paying(
        self,
        draft: Draft,
        gain: float,
        empty_drafts: Sequence[EmptyDraft],
        made: ModelDraft | None = None,
    ) -> _Selection:
        if not self._costs.is_shared:  # else the whole pass has a budget
            of_pass = self._costs.of_tree if draft.is_tree else self._costs.of_draft
            self._budget.admit(of_pass(len(draft)))
        if empty_drafts:
            draft = replace(draft, empty_drafts=tuple(empty_drafts))
        return _Selection(Cause.PAYS, draft, gain, made)

    def _probe(
        self, able: Sequence[ManagedDrafter], history: Sequence[int], limit: int
    ) -> _Selection | None:
        """A retry of a paused drafter, if the budget for probes covers one."""
        plan = self._probing.next(able, history, self._costs, limit, self.rate)
        if plan is None:
            return None
        made = self._planner.make(plan, history)
        if not made.draft.tokens:  # charge for it, else it would be retried at every step
            self._probing.settle(0, plan.cost.seconds(1, 0) / self._costs.seconds(1))
            return replace(_silent(made.empty_draft), is_probe=True)
        return _Selection(Cause.ASKED_AGAIN, made.draft, model_draft=made, is_probe=True)

    def observe(self, step: Step) -> None:
        pending, self._pending = self._pending, _NOTHING_PENDING
        if step.seconds <= 0.0:
            return  # the first token belongs to the prompt
        is_due = self._costs.is_shared or len(self._unlearned) == _MOST_UNLEARNED
        if pending.learners or is_due:
            self._catch_up()
            self._learn(step, pending)
        else:
            self._unlearned.append(step)

    def _catch_up(self) -> None:
        """Learn from the steps at which no drafter was asked."""
        if self._unlearned:
            steps, self._unlearned = self._unlearned, []
            self._rest(self._costly, len(steps))
            for step in steps:
                self._settle(step, 1.0 + self._of_pass(step))

    def _rest(self, drafters: Iterable[ManagedDrafter], steps: int) -> None:
        """Note steps at which drafter models were not asked."""
        for managed in drafters:
            managed.estimates.acceptance.decay_bias(steps)

    def _learn(self, step: Step, pending: _Pending) -> None:
        verifying = self._of_pass(step)
        if pending.refused is not None:
            self._budget.record_refusal(would_be_accepted=step.tokens[0] == pending.refused)
        sent, plain, drafting = pending.selection.draft.drafter, self._costs.seconds(1), 0.0
        made = pending.selection.model_draft
        if made is not None and step.drafter == made.plan.managed.name:
            if self._costs.is_shared:  # the time of all
                drafting = step.drafted * made.plan.cost.of_draw(self._costs)
            else:
                drafting = step.own_draft_seconds / plain
                made.plan.cost.observe(step.drafted, made.backlog, step.own_draft_seconds)
            if self._costs.changes and step.accepted == step.drafted:
                made.plan.managed.estimates.fade_from(step.drafted)
        for managed in pending.learners:
            proposal = pending.proposals.get(managed, NO_DRAFT)
            if proposal.tokens:
                managed.unsent = 0 if managed.name == sent else managed.unsent + 1
            managed.learn(proposal, step)
        in_vain = 0.0 if self._costs.is_shared else total_seconds(step.empty_drafts) / plain
        cost = 1.0 + verifying + in_vain + drafting
        promising = [one for one in pending.learners if one.name == sent]
        self._polling.settle(pending.learners, [*pending.promising, *promising])
        self._rest((one for one in self._costly if one not in pending.learners), 1)
        self._settle(step, cost, is_probe=pending.selection.is_probe)

    def _of_pass(self, step: Step) -> float:
        """Correct the cost of passes; returns that of this one beyond a plain step."""
        costs, is_tree = self._costs, step.branch is not None
        if costs.is_shared:
            return costs.row_price * step.drafted
        seconds, after_draft = step.seconds - step.draft_seconds, self._since_plain > 0
        costs.observe(step.passed, seconds, after_draft=after_draft, is_tree=is_tree)
        cost = (costs.of_tree if is_tree else costs.of_draft)(step.passed - 1)
        return cost + self._width.ran(step.passed) if costs.changes else cost

    def _settle(self, step: Step, cost: float, *, is_probe: bool = False) -> None:
        """Charge a step to the budget that it was allowed by, and update the present rate."""
        tokens = len(step.tokens)
        lost = max(cost - tokens, 0.0) if is_probe else 0.0
        if lost == 0.0 and not self._costs.is_shared:
            self._budget.settle(tokens, cost)
        self._probing.settle(tokens, lost)
        kept = 0.5 ** (cost / _RATE_MEMORY)
        self._recent_tokens = kept * self._recent_tokens + tokens
        self._recent_cost = kept * self._recent_cost + cost
        self._since_plain = self._since_plain + 1 if step.passed > 1 else 0


def _silent(*empty_drafts: EmptyDraft) -> _Selection:
    """A plain step, as the drafters that were asked proposed nothing."""
    return _Selection(Cause.SILENT, replace(NO_DRAFT, empty_drafts=empty_drafts))
