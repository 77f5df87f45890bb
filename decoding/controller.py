"""Decides at every step who drafts and how much: what is expected to pay, and can be afforded.

Free drafters propose as often as asking them pays, sent or not, and are judged by what the model
then says. A drafter that costs time is asked only where it is expected to pay, and draws token by
token.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from decoding.choice import Cause, Choice
from decoding.context_class import ContextReader
from decoding.cost import CostModel
from decoding.credit import Credit
from decoding.draft import NO_DRAFT, Draft, KeepOn, refusal_of_all
from decoding.drawing import Drawing, Order
from decoding.events import Step
from decoding.free_drafting import FreeDrafting
from decoding.member import Member
from decoding.no_cost import NoCost
from decoding.parking import Standing, is_promising, standing
from decoding.probing import Probing
from decoding.sampler import Sampler
from decoding.silence import Silence, wasted
from decoding.turns import Turns

BASELINE_EVERY = 64
"""Steps after which one is plain, so that what plain decoding takes stays measured."""

_MOST_UNLEARNED = 16
"""Steps at which nobody is asked; free drafters are asked as often as that."""

_RATE_MEMORY = 60.0
"""Plain steps after which half of the present rate is forgotten."""


class Controller:
    """A drafter made of drafters. It learns from every step it is told of by observe.

    costs: of the target's passes. n_vocab: of the target. reader: tells the kind of text that is
    being said, so that each drafter is judged by what it did in text of that kind. max_branches: of
    a tree that the target can verify, 1 if it cannot. turns: of its drafters, where not all of them
    may draft at each step.
    """

    is_free = False

    def __init__(
        self,
        members: Sequence[Member],
        costs: CostModel,
        n_vocab: int,
        clock: Callable[[], float] = time.perf_counter,
        reader: ContextReader | None = None,
        max_branches: int = 1,
        turns: Turns | None = None,
    ) -> None:
        self.members = tuple(members)
        self.max_branches = max_branches
        self.turns = turns
        self._costs = costs
        self._clock = clock
        self._n_vocab = n_vocab
        self.name = ",".join(member.name for member in members)
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
        free = [member for member in members if member.cost is None]
        self._dear = [member for member in members if member.cost is not None]
        self._free = FreeDrafting(free, costs, n_vocab, max_branches, clock)
        self._drawing = Drawing(costs, n_vocab, clock)
        self._listening: list[Member] = []
        """Those that this step may teach something."""
        self._unlearned: list[Step] = []
        """Steps at which nobody was asked. They change nothing until somebody is, and what follows
        a pass is slow, as the weights have emptied the caches: learned together they take a fifth
        of the time."""
        self._sent: frozenset[str] = frozenset()
        self._refused: int | None = None

    def at_no_cost(self) -> "Controller":
        """Another of the same drafters, which take turns at every step as if drafting cost nothing.

        So checks see all that they can draft, as it is drafted in replies. It learns nothing: it
        goes on expecting of each drafter what it expects of a new one.
        """
        members = [member.as_new() for member in self.members]
        return Controller(
            members,
            NoCost(self.costs.largest),
            self._n_vocab,
            clock=lambda: 0.0,
            reader=self._reader,
            max_branches=self.max_branches,
            turns=Turns(members),
        )

    @property
    def costs(self) -> CostModel:
        """Of the target's passes, as they have turned out."""
        self._catch_up()
        return self._costs

    @property
    def standings(self) -> list[Standing]:
        """What each drafter does now, and why."""
        self._catch_up()
        return [standing(member, self._costs) for member in self.members]

    @property
    def rate(self) -> float:
        """Tokens lately in the time of a plain step; 1 is plain decoding."""
        self._catch_up()
        return max(1.0, self._tokens / self._units)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._catch_up()
        self._credit.begin()
        self._free.begin(sampler.settings)
        if self._reader is not None:
            self._reader.begin()
            self._read_until = len(history)
        settings = sampler.settings
        for member in self._active():
            member.begin(settings.temperature, settings.lossy_in_effect)
            member.guarded(lambda one=member: one.drafter.begin(history, sampler), None)
            member.can_draft(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Each drafter that may well pay reads; what was parked catches up only when probed."""
        for member in self._active():
            if is_promising(member, self._costs):
                yield from member.read(history)

    def backlog(self, history: Sequence[int]) -> int:
        del history
        return 0

    def refusal(self, history: Sequence[int]) -> str:
        return refusal_of_all([member.drafter for member in self._active()], history)

    def commit(self, history: Sequence[int]) -> None:
        for member in self.members:
            if not member.dropped:
                member.commit(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # it decides itself
        self._is_probe = False
        limit = min(limit, self._costs.largest - 1)
        due = self._free.due()
        able = dear = [member for member in self._dear if member.can_draft(history)]
        if self.turns is not None:
            due, dear, limit = self.turns.next(due, dear, limit)
        listening = [*due, *able]
        if listening:
            self._catch_up()
        self._listening = listening
        if not listening:
            self._refused = None
            return NO_DRAFT if self.choice.cause is Cause.PAYS_NOT else self._plain(Cause.PAYS_NOT)
        self._read_context(history)
        offer = self._free.plan(due, history, limit, self.rate, self._credit.affordable)
        self._refused = offer.refused
        if limit < 1 or self._must_be_plain:
            return self._plain(Cause.PAYS_NOT if limit < 1 else Cause.MEASURED)
        silences: list[Silence] = []
        for order in self._orders(dear, history, limit):
            if order.gain <= offer.gain:
                break
            found = self._drawing.draw(order, history)
            if isinstance(found, Draft):
                return self._paying(found, order.gain, silences)
            silences.append(found)
        if offer.gain > 0.0:
            return self._paying(offer.draft, offer.gain, silences)
        return self._silent(*silences) if silences else self._probe(able, history, limit)

    def _orders(self, dear: Sequence[Member], history: Sequence[int], limit: int) -> list[Order]:
        """What may be drawn, the highest gain first."""
        self._drawing.refused = False
        rate, credit = self.rate, self._credit
        orders = [self._drawing.plan(member, history, limit, rate, credit) for member in dear]
        return sorted((one for one in orders if one), key=lambda one: one.gain, reverse=True)

    def _paying(self, draft: Draft, gain: float, silences: Sequence[Silence]) -> Draft:
        self._credit.risk(self._extra(len(draft), is_tree=draft.parents is not None))
        if silences:
            draft = replace(draft, silences=tuple(silences))
        return self._chosen(Cause.PAYS, draft, gain)

    def _silent(self, *silences: Silence) -> Draft:
        """A plain step after asking in vain."""
        return self._chosen(Cause.SILENT, replace(NO_DRAFT, silences=silences))

    def _chosen(self, cause: Cause, draft: Draft, gain: float = 0.0) -> Draft:
        self._sent = frozenset(draft.sources or (draft.drafter,))
        self.choice = Choice(cause, draft.drafter, draft.drafted, gain, self._context)
        return draft

    def _extra(self, drafted: int, *, is_tree: bool) -> float:
        """What a step costs beyond a plain one, in plain steps."""
        return self._costs.of_tree(drafted) if is_tree else self._costs.of_draft(drafted)

    def _plain(self, cause: Cause) -> Draft:
        return self._chosen(cause, NO_DRAFT)

    def _read_context(self, history: Sequence[int]) -> None:
        """See what kind of text the next token belongs to, where that makes a difference."""
        if self._reader is not None:
            self._reader.feed(history[self._read_until :])
            self._read_until = len(history)
            self._context = self._reader.current
            for member in self._listening:
                member.context = self._context

    @property
    def _must_be_plain(self) -> bool:
        """Whether the costs rest on too few plain steps."""
        return self._since_plain >= BASELINE_EVERY or self._costs.is_doubtful

    def _active(self) -> list[Member]:
        return [member for member in self.members if not member.dropped]

    def _probe(self, dear: Sequence[Member], history: Sequence[int], limit: int) -> Draft:
        """A draft of a parked drafter within the budget, to see whether it would pay now."""
        probe = self._probing.next(dear, history, self._costs, limit)
        if probe is None:
            is_risky = self._refused is not None or self._drawing.refused
            return self._plain(Cause.TOO_RISKY if is_risky else Cause.PAYS_NOT)
        self._is_probe = True
        order = Order(
            probe.member,
            probe.cost,
            probe.length,
            self._probing.budget,
            self.rate,
            least=probe.length,
            shape=probe.shape,
        )
        found = self._drawing.draw(order, history)
        if isinstance(found, Silence):  # were it for nothing, it would be asked at every step
            self._probing.settle(0, probe.cost.draw_seconds / self._costs.seconds(1))
            return self._silent(found)
        return self._chosen(Cause.ASKED_AGAIN, found)

    def observe(self, step: Step) -> None:
        """Learn from a step: what it cost, what came of each proposal, what may be risked next."""
        if step.seconds <= 0.0 or self.turns is not None:
            return  # the first token comes with the prompt; in turns nothing is learned
        if self._listening or len(self._unlearned) == _MOST_UNLEARNED:
            self._catch_up()
            self._learn(step)
        else:
            self._unlearned.append(step)

    def _catch_up(self) -> None:
        """Learn from the steps at which nobody was asked."""
        if self._unlearned:
            steps, self._unlearned = self._unlearned, []
            for step in steps:
                self._learn(step)

    def _learn(self, step: Step) -> None:
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
        if self._refused is not None:
            self._credit.refused(step.tokens[0] == self._refused)
        for member in self._listening:
            if member.name == step.drafter and member.cost is not None:
                drawn = min(step.drafted, member.proposal.body)
                member.cost.observe(drawn, self._drawing.backlog, step.own_draft_seconds)
                cost += step.own_draft_seconds / plain
            if member.proposal.tokens:
                member.unsent = 0 if member.name in self._sent else member.unsent + 1
            member.learn(step)
        count = len(step.tokens)
        saved = count - cost
        self._free.learn(step.tokens, self._sent, saved + in_vain, self._clock() - began)
        lost = -saved if self._is_probe and saved < 0.0 else 0.0
        if lost == 0.0:
            self._credit.settle(count, cost)
        self._probing.settle(count, lost)
        kept = 0.5 ** (cost / _RATE_MEMORY)
        self._tokens = kept * self._tokens + count
        self._units = kept * self._units + cost
        self._since_plain = self._since_plain + 1 if step.passed > 1 else 0
