"""A drafter model that drafts the next round while the target verifies this one."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.model.draft_model import DraftModel
from decoding.drafters.model.growing_draft import GrowingDraft
from decoding.events import Ahead, Step
from decoding.overlap.predraft import Predraft, Predrafts
from decoding.overlap.predrafting import Position, Round, Unranked, predrafting
from decoding.overlap.thread_split import ThreadSplit
from decoding.overlap.worker import Worker
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings

_LENGTH_MEMORY = 0.8
"""Weight that the mean length of drafts keeps at each draft, for the next one's. A guess; not
measured."""


class Overlapping:
    """Drafts like its drafter; between a draft and the next one, its worker drafts ahead.

    A draft made ahead is used if the text is exactly the one it was made for; otherwise it drafts
    then. The model's context is used by the worker between propose and the next call of another
    method, and by the caller else. acceptance: estimates it for each token of a draft.
    draw_seconds: what drafting a token in turn takes, from which hidden time is reckoned. split: of
    the processor's threads, where both share its cores.
    """

    is_free = False

    def __init__(
        self,
        name: str,
        drafter: DraftModel,
        worker: Worker,
        *,
        acceptance: Callable[[Draft], Sequence[float]] = lambda draft: draft.confidence,
        draw_seconds: Callable[[], float] = lambda: 0.0,
        split: ThreadSplit | None = None,
    ) -> None:
        assert not drafter.draws_on_device, "what is on a device belongs to one thread"
        self.name = name
        self._drafter = drafter
        self._worker = worker
        self._acceptance = acceptance
        self._draw_seconds = draw_seconds
        self._split = split
        self._sampler = self._sampler_ahead = Sampler(SamplingSettings())
        self._committed = 0
        self._predrafts: Predrafts | None = None
        """Made in the latest round; None if that was before the latest step."""
        self._is_committed = False
        """Whether the text of the step that the latest round ran in is committed."""
        self._mean_length = 0.0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.rest()
        self._predrafts = None
        self._committed = len(history)
        self._sampler, self._sampler_ahead = sampler, sampler.ahead()
        self._drafter.begin(history, sampler)

    def rest(self) -> None:
        """Draft ahead no further; raises what went wrong in it."""
        try:
            self._worker.stop()
        finally:
            if self._split is not None:
                self._split.end()

    def close(self) -> None:
        """Draft ahead never again."""
        self._worker.close()
        if self._split is not None:
            self._split.end()

    def commit(self, history: Sequence[int]) -> None:
        self.rest()
        if self._is_committed:  # a step has passed in which nothing was drafted ahead
            self._predrafts = None
        self._is_committed = True
        self._committed = len(history)
        self._drafter.commit(history)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the next text decides what is used of the drafts made ahead."""

    def backlog(self, history: Sequence[int]) -> int:
        self.rest()
        is_ready = self._predrafts is not None and self._predrafts.has(history)
        return 1 if is_ready else self._drafter.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._drafter.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self.rest()
        return self._drafter.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        """A draft as of its drafter; from its return on, the next round is drafted ahead."""
        self.rest()
        count = self._drafter.room(history, limit)
        if count <= 0:
            return NO_DRAFT
        made = self._predrafts
        tried, ready = (None, None) if made is None else (len(made), made.take(history))
        draft, positions = GrowingDraft(), list[Position]()
        for position in self._drawn(history, count, ready, draft):
            positions.append(position)
            if len(draft) == count or keep_on is None:
                continue
            if not keep_on(draft.confidence[-1], draft.evidence[-1]):
                break
        ahead = None if tried is None else self._outcome(tried, ready, len(draft))
        done = replace(draft.done(self.name), ahead=ahead)
        self._draft_ahead(history, done, positions)
        return done

    def _drawn(
        self, history: Sequence[int], count: int, ready: Predraft | None, draft: GrowingDraft
    ) -> Iterator[Position]:
        """Add the tokens that are ready to draft, then sample further ones, up to count in all.

        Yields the position of each, before the next one is looked at: whether one follows may
        depend on those before it alone.
        """
        if ready is not None:
            made = ready.draft
            for place, candidates in enumerate(ready.candidates):
                token, q_draft = made.tokens[place], made.distributions[place]
                draft.add(token, made.confidence[place], made.evidence[place], q_draft)
                yield candidates
                if len(draft) == count or token in self._drafter.end_tokens:
                    return
        for row in self._drafter.drawing(history, count, draft, self._sampler):
            yield Unranked(row.copy())

    def _draft_ahead(
        self, history: Sequence[int], draft: Draft, positions: Sequence[Position]
    ) -> None:
        kept = _LENGTH_MEMORY if self._mean_length else 0.0
        self._mean_length = kept * self._mean_length + (1.0 - kept) * len(draft)
        predrafts = self._predrafts = Predrafts(self._committed)
        self._is_committed = False
        current = Round(
            history=tuple(history),
            drafted=draft.tokens,
            positions=positions,
            acceptance=self._acceptance(draft),
            longest=math.ceil(self._mean_length),
        )
        if self._split is not None:
            self._split.begin()
        self._worker.start(predrafting(self._drafter, self._sampler_ahead, current, predrafts))

    def _outcome(self, drafts: int, ready: Predraft | None, length: int) -> Ahead:
        """What a round in which so many drafts were made did for a draft of this length."""
        if ready is None:
            return Ahead(drafts)
        used = min(length, len(ready.draft))
        return Ahead(drafts, is_hit=True, hidden_seconds=used * self._draw_seconds())
