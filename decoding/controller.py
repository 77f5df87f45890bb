"""Decides at every step who drafts and how much: what is expected to pay, and can be afforded.

Free drafters propose at every step, sent or not, and are judged by what the model then says. A
drafter that costs time is asked only where it is expected to pay, and draws token by token.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from decoding.choice import Cause, Choice
from decoding.context_class import ContextReader
from decoding.cost import CostModel, DraftCost
from decoding.credit import Credit
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.events import Step
from decoding.length import NOTHING, Plan, best_length, best_tail, predicted_speedup
from decoding.member import Member
from decoding.parking import Standing, is_promising, standing
from decoding.probing import Probing
from decoding.sampler import Sampler

BASELINE_EVERY = 64
"""Steps after which one is plain, so that what plain decoding takes stays measured."""

_RATE_MEMORY = 60.0
"""Plain steps after which half of the present rate is forgotten."""

_START_STEPS = 32
"""Steps over which reading what a drafter missed is spread when judging whether it pays."""

_STALL_SECONDS = 1.0
_STALL_FACTOR = 20.0


class Controller:
    """A drafter made of drafters. It learns from every step it is told of by observe.

    costs: of the target's passes. n_vocab: of the target. reader: tells the kind of text that is
    being said, so that each drafter is judged by what it did in text of that kind.
    """

    is_free = False

    def __init__(
        self,
        members: Sequence[Member],
        costs: CostModel,
        n_vocab: int,
        clock: Callable[[], float] = time.perf_counter,
        reader: ContextReader | None = None,
    ) -> None:
        self.members = tuple(members)
        self.costs = costs
        self.name = ",".join(member.name for member in members)
        self._n_vocab = n_vocab
        self._clock = clock
        self._reader = reader
        self._read_until = 0
        self._context = ""
        self.choice = Choice(Cause.PAYS_NOT)
        """Of the last step."""
        self._credit = Credit()
        self._tokens = self._units = 10.0
        self._since_plain = 0
        self._probing = Probing()
        self._is_probe = False
        self._allowed = 0.0
        self._refused: Member | None = None
        self._backlog = 0

    @property
    def standings(self) -> list[Standing]:
        """What each drafter does now, and why."""
        return [standing(member, self.costs) for member in self.members]

    @property
    def rate(self) -> float:
        """Tokens lately in the time of a plain step; 1 is plain decoding."""
        return max(1.0, self._tokens / self._units)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._credit.begin()
        if self._reader is not None:
            self._reader.begin()
            self._read_until = len(history)
        settings = sampler.settings
        for member in self._active():
            member.begin(settings.temperature, settings.lossy_in_effect)
            member.guarded(lambda one=member: one.drafter.begin(history, sampler), None)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Each drafter that may well pay reads; what was parked catches up only when probed."""
        for member in self._active():
            if is_promising(member, self.costs):
                yield from member.read(history)

    def backlog(self, history: Sequence[int]) -> int:
        del history
        return 0

    def commit(self, history: Sequence[int]) -> None:
        self._read_context(history)
        for member in self._active():
            member.context = self._context
            member.guarded(lambda one=member: one.drafter.commit(history), None)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # it decides itself
        self._refused = None
        self._is_probe = False
        limit = min(limit, self.costs.largest - 1)
        plans = [(self._plan(member, history, limit), member) for member in self._active()]
        if not plans or limit < 1 or self._must_be_plain:
            return self._plain(Cause.MEASURED if plans and limit >= 1 else Cause.PAYS_NOT)
        plan, member = max(plans, key=lambda pair: pair[0].gain)
        if plan.length == 0:
            return self._probe(history, limit)
        if member.cost is None:
            draft = member.proposal.first(plan.length)
        else:
            draft = self._drawn(member, member.cost, history, limit)
        self._credit.risk(self.costs.of_draft(len(draft)))
        return self._chosen(Cause.PAYS, draft, plan.gain)

    def _chosen(self, cause: Cause, draft: Draft, gain: float = 0.0) -> Draft:
        self.choice = Choice(cause, draft.drafter, draft.drafted, gain, self._context)
        return draft

    def _plain(self, cause: Cause) -> Draft:
        return self._chosen(cause, NO_DRAFT)

    def _read_context(self, history: Sequence[int]) -> None:
        """See what kind of text the next token belongs to."""
        if self._reader is not None:
            self._reader.feed(history[self._read_until :])
            self._read_until = len(history)
            self._context = self._reader.current

    @property
    def _must_be_plain(self) -> bool:
        """Whether the costs rest on too few plain steps."""
        return self._since_plain >= BASELINE_EVERY or self.costs.is_doubtful

    def _active(self) -> list[Member]:
        return [member for member in self.members if not member.dropped]

    def _plan(self, member: Member, history: Sequence[int], limit: int) -> Plan:
        """The best draft of a member that can be afforded."""
        if member.cost is not None:
            return self._plan_to_draw(member, member.cost, history, limit)
        draft = member.propose(history, limit, self._n_vocab)
        if not draft.tokens:
            return NOTHING
        plan = self._best(member.estimates(draft), self._credit.affordable)
        if plan.length == 0 and self._best(member.estimates(draft)).length > 0:
            self._refused = member
        return plan

    def _best(self, acceptance: Sequence[float], affordable: float = float("inf")) -> Plan:
        return best_length(acceptance, self.costs, rate=self.rate, affordable=affordable)

    def _plan_to_draw(
        self, member: Member, cost: DraftCost, history: Sequence[int], limit: int
    ) -> Plan:
        plain = self.costs.seconds(1)
        start = cost.seconds(0, member.drafter.backlog(history)) / plain
        draw = cost.draw_seconds / plain
        costs = member.costs(self.costs)
        expected = member.by_position(0, limit)
        surely = member.shifted(expected, errors=-1.0)
        pays = predicted_speedup(lambda place: surely[place], costs, draw, limit) > 1.0
        self._allowed = self._credit.trusting if pays else self._credit.affordable
        return best_length(
            expected,
            costs,
            rate=self.rate,
            affordable=self._allowed - start,
            draft_cost=draw,
            start_cost=start / _START_STEPS,
        )

    def _drawn(
        self, member: Member, cost: DraftCost, history: Sequence[int], limit: int, least: int = 1
    ) -> Draft:
        """A draft of a member that costs time, ended where one more token would not pay."""
        started = self._clock()
        self._backlog = member.drafter.backlog(history)
        draw_cost = cost.draw_seconds / self.costs.seconds(1)
        together = 1.0
        drawn = 0

        def keep_on(confidence: float, evidence: int) -> bool:
            nonlocal together, drawn
            together *= member.estimate(confidence, evidence)
            drawn += 1
            if drawn < least:
                return True
            if self._clock() - started > _STALL_SECONDS:
                return False
            further = member.by_position(drawn, limit - drawn)
            if not further:
                return False
            lost = self.costs.of_draft(drawn) + drawn * draw_cost
            plan = best_length(
                [together * further[0], *further[1:]],
                self.costs,
                rate=self.rate,
                affordable=self._allowed - lost,
                draft_cost=draw_cost,
                drafted=drawn,
            )
            return plan.length > 0

        draft = member.propose(history, limit, self._n_vocab, keep_on)
        seconds = self._clock() - started
        expected = cost.seconds(max(draft.body, 1), self._backlog)
        if seconds > max(_STALL_SECONDS, _STALL_FACTOR * expected):
            proposal = member.proposal
            member.drop(f"it stalled: {seconds:.1f} s for {len(draft)} tokens")
            member.proposal = proposal  # what was drawn stands
        return self._cut(draft, member, draw_cost) if draft.tail else draft

    def _cut(self, draft: Draft, member: Member, draw_cost: float) -> Draft:
        """A drawn draft with as much of its tail as is expected to pay."""
        lost = self.costs.of_draft(draft.body) + draft.body * draw_cost
        kept = best_tail(
            member.estimates(draft),
            draft.body,
            self.costs,
            rate=self.rate,
            affordable=self._allowed - lost,
        )
        return draft.first(draft.body + kept)

    def _probe(self, history: Sequence[int], limit: int) -> Draft:
        """A draft of a parked drafter within the budget, to see whether it would pay now."""
        probe = self._probing.next(self._active(), history, self.costs, limit)
        if probe is None:
            return self._plain(Cause.TOO_RISKY if self._refused else Cause.PAYS_NOT)
        self._is_probe = True
        self._allowed = self._probing.budget
        draft = self._drawn(probe.member, probe.cost, history, probe.length, least=probe.length)
        return self._chosen(Cause.ASKED_AGAIN, draft)

    def observe(self, step: Step) -> None:
        """Learn from a step: what it cost, what came of each proposal, what may be risked next."""
        if step.seconds <= 0.0:
            return  # the first token comes with the prompt
        self.costs.observe(
            step.passed,
            step.seconds - step.draft_seconds,
            after_draft=self._since_plain > 0,
        )
        plain = self.costs.seconds(1)
        cost = 1.0 + self.costs.of_draft(step.passed - 1)
        refused = self._refused
        if refused is not None and refused.proposal.tokens:
            self._credit.refused(step.tokens[0] == refused.proposal.tokens[0])
        for member in self.members:
            if member.name == step.drafter and member.cost is not None:
                drawn = min(step.drafted, member.proposal.body)
                member.cost.observe(drawn, self._backlog, step.draft_seconds)
                cost += step.draft_seconds / plain
            if member.proposal.tokens:
                member.unsent = 0 if member.name == step.drafter else member.unsent + 1
            member.learn(step)
        count = len(step.tokens)
        saved = count - cost
        lost = -saved if self._is_probe and saved < 0.0 else 0.0
        if lost == 0.0:
            self._credit.settle(count, cost)
        self._probing.settle(count, lost)
        kept = 0.5 ** (cost / _RATE_MEMORY)
        self._tokens = kept * self._tokens + count
        self._units = kept * self._units + cost
        self._since_plain = self._since_plain + 1 if step.passed > 1 else 0
