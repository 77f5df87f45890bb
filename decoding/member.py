"""A drafter under the controller, with what is known of it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from decoding import rank_acceptance
from decoding.acceptance import LEAST, Acceptance, Count
from decoding.cost import CostModel, DraftCost, DraftCosts, TreeCosts, TreePasses, TreeSize
from decoding.draft import NO_DRAFT, Draft, Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.planned import PlannedDrafter
from decoding.events import Step
from decoding.first_branch import as_line, kept_of
from decoding.guarded import Guarded
from decoding.kinds import DRAWN, GREEDY, NOTHING, band
from decoding.level_cost import LevelCost
from decoding.lossy_rule import LossyRule
from decoding.sampling import SamplingSettings
from decoding.tree_shape import TreeShape

POSITION_PRIOR = 0.65
"""Acceptance expected of a drafter model that nobody has measured."""


class Member(Guarded):
    """Guards a drafter, estimates what its tokens are worth, and learns from what became of them.

    cost: None for a free drafter. acceptance: what an earlier start learned. tree: the size of what
    it proposes, None for lines. prior: acceptance expected until it is known. planned: the drafter,
    where its trees can be planned. lines: the member that drafts single lines of the same drafter
    model, which learns from what this one drafts as if it had drafted it.
    """

    def __init__(
        self,
        drafter: Drafter,
        acceptance: Acceptance | None = None,
        cost: DraftCost | None = None,
        tree: TreeSize | None = None,
        prior: float = POSITION_PRIOR,
        planned: PlannedDrafter | None = None,
        lines: "Member | None" = None,
    ) -> None:
        super().__init__(drafter)
        self.planned = planned
        self.lines = lines
        self.prior = prior
        self._tree = tree
        self.acceptance = acceptance or Acceptance()
        self.cost = cost
        self.judged = Count()
        """Its tokens that the model judged by the exact rule, sent or not."""
        self.unsent = 0
        """Proposals in a row that were not worth sending."""
        self.context = ""
        """The kind of text that the next token belongs to, "" where that is not known."""
        self._band = band(SamplingSettings().temperature)
        self._is_lossless = True

    def as_new(self) -> "Member":
        """The same drafter of which nothing is known; what it is made of drafts at no cost."""
        drafter = self.drafter
        if isinstance(drafter, Cascade):
            drafter = drafter.at_no_cost()
        found = Member(drafter, None, self.cost, self._tree, self.prior, self.planned)
        found.dropped = self.dropped
        return found

    def costs(self, passes: CostModel) -> DraftCosts:
        """What its drafts cost the target, by how many tokens of them may stand."""
        if self.planned is not None:  # at the least, as one branch can be all
            return TreePasses(passes)
        return TreeCosts(passes, self._tree) if self._tree else passes

    def plan(self, shape: TreeShape) -> None:
        """Let the drafter draft in this form from now on."""
        if self.planned is not None and isinstance(self.cost, LevelCost):
            self.planned.plan(shape)
            self.cost.plan(shape.widths)

    @property
    def shared_lines(self) -> "Member | None":
        """Its lines while what becomes of its drafts and of theirs teaches both, None else."""
        if self.lines is None or self.lines.dropped or not self._is_lossless:
            return None
        return self.lines

    def by_rank(self) -> list[float]:
        """How often the child of each rank is the one kept, given that its parent is."""
        lines = self.shared_lines
        if lines is not None:  # its first children are their tokens
            first = lines.acceptance.in_this_reply(lines.mean_drawn)
        else:
            first = rank_acceptance.of_first(self.acceptance, self._band, self.mean_drawn)
        return rank_acceptance.by_rank(self.acceptance, self._band, first)

    @property
    def mean_drawn(self) -> float:
        """How often a token of a drafter model is accepted, over all replies and places."""
        return self._mean(f"{self._band}:{DRAWN}", self.prior)

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        """A new reply at a temperature; a lossy rule has acceptances of its own."""
        self._band = band(temperature, rule)
        self._is_lossless = rule is None
        self.proposal = NO_DRAFT
        self.acceptance.begin()

    def estimate(self, confidence: float, evidence: int) -> float:
        """The probability that a token is accepted, if all before it are."""
        return self.acceptance.in_this_reply(self._mean(f"{self._band}:{evidence}", confidence))

    def _mean(self, kind: str, prior: float) -> float:
        """Of a kind of token over all replies, and then in this kind of text."""
        mean = self.acceptance.mean(kind, prior)
        return self.acceptance.mean(f"{kind}:{self.context}", mean) if self.context else mean

    def estimates(self, draft: Draft) -> list[float]:
        """The same for each token of a draft."""
        pairs = zip(draft.confidence, draft.evidence, strict=True)
        return [self.estimate(confidence, evidence) for confidence, evidence in pairs]

    def by_position(self, first: int, count: int) -> list[float]:
        """The same for tokens not drawn yet, known by their place in the draft alone.

        A place that was seldom reached is taken to be like the one before it.
        """
        found: list[float] = []
        kind = f"{self._band}:{DRAWN}"
        mean = self.acceptance.mean(kind, self.prior)
        better = _log_odds(self._mean(kind, self.prior)) - _log_odds(mean)
        for place in range(first + count):
            mean = self.acceptance.mean(f"{self._band}:at{place}", mean)
            if place >= first:
                found.append(self.acceptance.in_this_reply(mean, better))
        return found

    def at_position(self, place: int) -> float:
        """The same of one token."""
        return self.by_position(place, 1)[0]

    def shifted(self, estimates: Sequence[float], errors: float) -> list[float]:
        """Estimates by position, so many standard errors higher or lower."""
        judged = self.acceptance.judged(f"{self._band}:{DRAWN}")
        return [
            min(max(mean + errors * math.sqrt(mean * (1.0 - mean) / (judged + 1.0)), 0.0), 1.0)
            for mean in estimates
        ]

    @property
    def recalled(self) -> float | None:
        """The share accepted as it was known before any token of now was judged, if it was."""
        drawn = f"{self._band}:{DRAWN}"
        silent = self._silent
        return None if self.acceptance.judged(drawn) <= silent else self.acceptance.share(drawn)

    @property
    def was_silent(self) -> bool:
        """Whether it was asked in vain."""
        return self._silent > 0.0

    @property
    def _silent(self) -> float:
        return self.acceptance.judged(f"{self._band}:{NOTHING}")

    @property
    def is_untried(self) -> bool:
        """Whether nothing is known of it, from this start or an earlier one."""
        return not self.acceptance.counts()

    def learn(self, step: Step) -> None:
        """Judge the last proposal, sent or not, by what the model said."""
        draft = self.proposal
        self.proposal = NO_DRAFT
        if not draft.tokens:
            self.acceptance.rest()
        sent = step.passed > 1 and step.drafter == draft.drafter
        if sent:
            self._teach_lines(draft, step)
        if not draft.is_tree:
            self._learn_of_line(draft, step, sent=sent)
        elif sent:
            self._learn_of_tree(draft, step)

    def _teach_lines(self, draft: Draft, step: Step) -> None:
        """What would have become of the line in place of a draft that was sent."""
        lines = self.shared_lines
        if lines is None:
            return
        line = as_line(draft, is_greedy=self._band == GREEDY)
        if line is not None:
            step = replace(step, accepted=kept_of(line, step))
            lines._learn_of_line(line, step, sent=True)

    def _learn_of_line(self, draft: Draft, step: Step, *, sent: bool) -> None:
        for place, token in enumerate(draft.tokens):
            is_drawn = draft.is_sampled and place < draft.body
            if not is_drawn:
                if place == len(step.tokens):
                    return
                accepted = token == step.tokens[place]
            elif not sent or (place == step.accepted == len(step.tokens)):
                return
            else:
                accepted = place < step.accepted
            if self.cost is not None and place < draft.body:
                self._add_drawn(place, accepted=accepted)
            self._learn_kind(draft.evidence[place], draft.confidence[place], accepted)
            if self._is_lossless:
                self.judged.add(accepted)
            if not accepted:
                return

    def _learn_of_tree(self, draft: Draft, step: Step) -> None:
        if not step.drafted:  # a pass over window tokens alone
            self.had_nothing_to_say()
            return
        if self.planned is not None:
            rank_acceptance.learn(self.acceptance, self._band, draft, step)
        for place in range(min(len(step.tokens), step.accepted + 1, max(step.longest, 1))):
            accepted = place < step.accepted
            self._add_drawn(place, accepted=accepted)
            if self._is_lossless:
                self.judged.add(accepted)

    def had_nothing_to_say(self) -> None:
        """It was asked for no token: counted against it, though no token of it was judged."""
        self._add_drawn(0, accepted=False)
        self.acceptance.add(f"{self._band}:{NOTHING}", False)

    def _learn_kind(self, evidence: int, confidence: float, accepted: bool) -> None:
        self.acceptance.feel(self.estimate(confidence, evidence), accepted)
        self._add(f"{self._band}:{evidence}", accepted)

    def _add_drawn(self, place: int, *, accepted: bool) -> None:
        self._add(f"{self._band}:{DRAWN}", accepted)
        self.acceptance.add(f"{self._band}:at{place}", accepted)

    def _add(self, kind: str, accepted: bool) -> None:
        """Count a token of a kind, in all text and in this kind of text."""
        self.acceptance.add(kind, accepted)
        if self.context:
            self.acceptance.add(f"{kind}:{self.context}", accepted)


def _log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1.0 - LEAST)
    return math.log(share / (1.0 - share))
