"""Decides at every step who drafts and how much: what is expected to pay, and can be afforded.

Free drafters propose as often as asking them pays, sent or not, and are judged by what the model
then says. A drafter that costs time is asked only where it is expected to pay, and drafts token by
token.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from decoding.draft import NO_DRAFT, Draft, KeepOn, refusal_of_all
from decoding.estimation.cost import CostModel
from decoding.estimation.no_cost import NoCost
from decoding.estimation.text_kind import TextKindReader
from decoding.events import Step
from decoding.planning.decision import Cause, Decision
from decoding.planning.free_drafting import FreeDrafting, Offer
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.model_draft_planner import DraftPlan, Drawn, ModelDraftPlanner
from decoding.planning.parking import DrafterStatus, drafter_status, is_promising
from decoding.planning.probing import Probing
from decoding.planning.risk_budget import RiskBudget
from decoding.planning.turns import LENGTHS, Turns
from decoding.sampling.sampler import Sampler
from decoding.silence import Silence, wasted

BASELINE_EVERY = 64
"""Steps after which one is plain, so that what plain decoding takes stays measured."""

_MOST_UNLEARNED = 16
"""Steps at which nobody is asked; free drafters are asked as often as that."""

_RATE_MEMORY = 60.0
"""Plain steps after which half of the present rate is forgotten."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """What a step drafts and why, of all that was proposed for it.

    drawn: by a drafter that costs time, if its draft is sent. is_probe: whether it is sent to see
    whether it pays.
    """

    cause: Cause
    draft: Draft = NO_DRAFT
    gain: float = 0.0
    drawn: Drawn | None = None
    is_probe: bool = False

    @property
    def sent(self) -> frozenset[str]:
        """The drafters whose tokens are verified."""
        return frozenset(self.draft.sources or (self.draft.drafter,))


_NO_DRAFT_PAYS = _Selection(Cause.PAYS_NOT)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A selection whose outcome is not known yet, and the drafters that will learn from it.

    refused: a token that would have been drafted if more could be risked. proposals: by drafter,
    whether sent or not.
    """

    selection: _Selection = _NO_DRAFT_PAYS
    listening: Sequence[ManagedDrafter] = ()
    refused: int | None = None
    proposals: Mapping[ManagedDrafter, Draft] = field(default_factory=dict[ManagedDrafter, Draft])


_NOTHING_PENDING = _Pending()


class Controller:
    """A drafter made of drafters, which learns from each step which of them pay.

    costs: of the target's passes. n_vocab: of the target. reader: tells the kind of text being
    written, as acceptance depends on it. max_branches: of a tree that the target can verify, 1 if
    it cannot. turns: whose turn it is to draft, where that is not decided by what pays; nothing is
    learned then.
    """

    is_free = False

    def __init__(
        self,
        members: Sequence[ManagedDrafter],
        costs: CostModel,
        n_vocab: int,
        clock: Callable[[], float] = time.perf_counter,
        reader: TextKindReader | None = None,
        max_branches: int = 1,
        turns: Turns | None = None,
    ) -> None:
        self.name = ",".join(member.name for member in members)
        self.members = tuple(members)
        self.max_branches = max_branches
        self.turns = turns
        self.choice = Decision(Cause.PAYS_NOT)
        """Of the last step."""
        self._costs = costs
        self._clock = clock
        self._n_vocab = n_vocab
        self._reader = reader
        self._read_until = 0
        self._text_kind = ""
        self._credit = RiskBudget()
        self._probing = Probing()
        self._tokens = self._units = 10.0
        self._since_plain = 0
        free = [member for member in members if member.cost is None]
        self._costly = [member for member in members if member.cost is not None]
        self._free = FreeDrafting(free, costs, n_vocab, max_branches, clock)
        self._planner = ModelDraftPlanner(costs, n_vocab, clock)
        self._pending = _NOTHING_PENDING
        self._unlearned: list[Step] = []
        """Steps at which nobody was asked. They change nothing until somebody is, and what follows
        a pass is slow, as the weights have emptied the caches: learned together they take a fifth
        of the time."""

    def at_no_cost(self, lengths: Sequence[int] = LENGTHS) -> "Controller":
        """Another of the same drafters, which take turns at every step as if drafting cost nothing.

        So checks see all that they can draft, as it is drafted in replies. It learns nothing: it
        goes on expecting of each drafter what it expects of a new one. lengths: of the drafts.
        """
        members = [member.as_new() for member in self.members]
        return Controller(
            members,
            NoCost(self.costs.largest),
            self._n_vocab,
            clock=lambda: 0.0,
            reader=self._reader,
            max_branches=self.max_branches,
            turns=Turns(members, lengths),
        )

    @property
    def costs(self) -> CostModel:
        """Cost of the target's passes, as learned so far."""
        self._catch_up()
        return self._costs

    @property
    def standings(self) -> list[DrafterStatus]:
        """State of each drafter, with the reason where it is not on."""
        self._catch_up()
        return [drafter_status(member, self._costs) for member in self.members]

    @property
    def rate(self) -> float:
        """Tokens lately in the time of a plain step; 1 is plain decoding."""
        self._catch_up()
        return max(1.0, self._tokens / self._units)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._catch_up()
        self._pending = _NOTHING_PENDING
        self._credit.begin()
        self._free.begin(sampler.settings)
        if self._reader is not None:
            self._reader.begin()
            self._read_until = len(history)
        settings = sampler.settings
        for member in self._active():
            member.begin(settings.temperature, settings.lossy_in_effect)
            member.guarded(lambda member=member: member.drafter.begin(history, sampler), None)
            member.can_draft(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Each drafter that may well pay reads; a parked one catches up only when probed."""
        for member in self._active():
            if is_promising(member, self._costs):
                yield from member.read(history)

    def backlog(self, history: Sequence[int]) -> int:
        del history
        return 0

    def refusal(self, history: Sequence[int]) -> str:
        return refusal_of_all([member.drafter for member in self._active()], history)

    def commit(self, history: Sequence[int]) -> None:
        for member in self._active():
            member.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        """The draft that is expected to gain most; keep_on is not asked."""
        del keep_on
        limit = min(limit, self._costs.largest - 1)
        due = self._free.due()
        able = costly = [member for member in self._costly if member.can_draft(history)]
        if self.turns is not None:
            due, costly, limit = self.turns.next(due, costly, limit)
        listening = [*due, *able]
        if not listening:
            self._pending = _NOTHING_PENDING
            if self.choice.cause is not Cause.PAYS_NOT:
                self.choice = Decision(Cause.PAYS_NOT, context=self._text_kind)
            return NO_DRAFT
        self._catch_up()
        self._read_text_kind(history, listening)
        offer = self._free.plan(due, history, limit, self.rate, self._credit.affordable)
        if limit < 1 or self._must_be_plain:
            selection = _Selection(Cause.PAYS_NOT if limit < 1 else Cause.MEASURED)
        else:
            selection = self._select(offer, costly, able, history, limit)
        proposals = dict(offer.proposals)
        if selection.drawn is not None:
            proposals[selection.drawn.order.member] = selection.drawn.proposal
        self._pending = _Pending(selection, listening, offer.refused, proposals)
        draft = selection.draft
        self.choice = Decision(
            selection.cause, draft.drafter, draft.drafted, selection.gain, self._text_kind
        )
        return draft

    def _select(
        self,
        offer: Offer,
        costly: Sequence[ManagedDrafter],
        able: Sequence[ManagedDrafter],
        history: Sequence[int],
        limit: int,
    ) -> _Selection:
        """Choose the draft with the highest gain; where none pays, a probe or a plain step."""
        rate, credit = self.rate, self._credit
        plans = [self._planner.plan(member, history, limit, rate, credit) for member in costly]
        orders = [plan for plan in plans if isinstance(plan, DraftPlan)]
        silences: list[Silence] = []
        for order in sorted(orders, key=lambda order: order.gain, reverse=True):
            if order.gain <= offer.gain:
                break
            drawn = self._planner.draw(order, history)
            if drawn.draft.tokens:
                return self._paying(drawn.draft, order.gain, silences, drawn)
            silences.append(drawn.silence)
        if offer.gain > 0.0:
            return self._paying(offer.draft, offer.gain, silences)
        if silences:
            return _silent(*silences)
        is_risky = offer.refused is not None or Cause.TOO_RISKY in plans
        plain = _Selection(Cause.TOO_RISKY) if is_risky else _NO_DRAFT_PAYS
        return self._probe(able, history, limit) or plain

    def _paying(
        self, draft: Draft, gain: float, silences: Sequence[Silence], drawn: Drawn | None = None
    ) -> _Selection:
        self._credit.risk(self._extra(len(draft), is_tree=draft.is_tree))
        if silences:
            draft = replace(draft, silences=tuple(silences))
        return _Selection(Cause.PAYS, draft, gain, drawn)

    def _probe(
        self, able: Sequence[ManagedDrafter], history: Sequence[int], limit: int
    ) -> _Selection | None:
        """A draft of a parked drafter within the budget, to see whether it would pay now."""
        order = self._probing.next(able, history, self._costs, limit, self.rate)
        if order is None:
            return None
        drawn = self._planner.draw(order, history)
        if not drawn.draft.tokens:  # were it for nothing, it would be asked at every step
            self._probing.settle(0, order.cost.draw_seconds / self._costs.seconds(1))
            return replace(_silent(drawn.silence), is_probe=True)
        return _Selection(Cause.ASKED_AGAIN, drawn.draft, drawn=drawn, is_probe=True)

    def _extra(self, drafted: int, *, is_tree: bool) -> float:
        """What a step costs beyond a plain one, in plain steps."""
        return self._costs.of_tree(drafted) if is_tree else self._costs.of_draft(drafted)

    def _read_text_kind(self, history: Sequence[int], listening: Sequence[ManagedDrafter]) -> None:
        """Classify the text that the next token belongs to."""
        if self._reader is not None:
            self._reader.feed(history[self._read_until :])
            self._read_until = len(history)
            self._text_kind = self._reader.current
            for member in listening:
                member.estimates.text_kind = self._text_kind

    @property
    def _must_be_plain(self) -> bool:
        """Whether the costs rest on too few plain steps."""
        return self._since_plain >= BASELINE_EVERY or self._costs.is_doubtful

    def _active(self) -> list[ManagedDrafter]:
        return [member for member in self.members if not member.dropped]

    def observe(self, step: Step) -> None:
        """Learn from a step: what it cost, what came of each proposal, what may be risked next."""
        pending, self._pending = self._pending, _NOTHING_PENDING
        if step.seconds <= 0.0 or self.turns is not None:
            return  # the first token comes with the prompt; in turns nothing is learned
        if pending.listening or len(self._unlearned) == _MOST_UNLEARNED:
            self._catch_up()
            self._learn(step, pending)
        else:
            self._unlearned.append(step)

    def _catch_up(self) -> None:
        """Learn from the steps at which nobody was asked."""
        if self._unlearned:
            steps, self._unlearned = self._unlearned, []
            for step in steps:
                self._learn(step, _NOTHING_PENDING)

    def _learn(self, step: Step, pending: _Pending) -> None:
        began = self._clock()
        self._costs.observe(
            step.passed,
            step.seconds - step.draft_seconds,
            after_draft=self._since_plain > 0,
            is_tree=step.branch is not None,
        )
        plain = self._costs.seconds(1)
        in_vain = wasted(step.silences) / plain
        cost = 1.0 + self._extra(step.passed - 1, is_tree=step.branch is not None) + in_vain
        if pending.refused is not None:
            self._credit.refused(step.tokens[0] == pending.refused)
        selection, sent = pending.selection, pending.selection.sent
        drawn = selection.drawn
        if drawn is not None and step.drafter == drawn.order.member.name:
            drafted = min(step.drafted, drawn.proposal.body)
            drawn.order.cost.observe(drafted, drawn.backlog, step.own_draft_seconds)
            cost += step.own_draft_seconds / plain
        for member in pending.listening:
            proposal = pending.proposals.get(member, NO_DRAFT)
            if proposal.tokens:
                member.unsent = 0 if member.name in sent else member.unsent + 1
            member.learn(proposal, step)
        count = len(step.tokens)
        saved = count - cost
        self._free.learn(step.tokens, sent, saved + in_vain, self._clock() - began)
        lost = -saved if selection.is_probe and saved < 0.0 else 0.0
        if lost == 0.0:
            self._credit.settle(count, cost)
        self._probing.settle(count, lost)
        kept = 0.5 ** (cost / _RATE_MEMORY)
        self._tokens = kept * self._tokens + count
        self._units = kept * self._units + cost
        self._since_plain = self._since_plain + 1 if step.passed > 1 else 0


def _silent(*silences: Silence) -> _Selection:
    """A plain step after asking in vain."""
    return _Selection(Cause.SILENT, replace(NO_DRAFT, silences=silences))
