"""A drafter model that drafts the next round while the target verifies this one."""

import math
import time
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
    method, and by the caller else. acceptance: estimates it for each token of a draft. split: of
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
        split: ThreadSplit | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert not drafter.draws_on_device, "what is on a device belongs to one thread"
        self.name = name
        self._drafter = drafter
        self._worker = worker
        self._acceptance = acceptance
        self._split = split
        self._clock = clock
        self._sampler = self._sampler_ahead = Sampler(SamplingSettings())
        self._committed = 0
        self._predrafts = Predrafts(0)
        self._mean_length = 0.0

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.rest()
        self._predrafts = Predrafts(0)
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
        self._committed = len(history)
        self._drafter.commit(history)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the next text decides what is used of the drafts made ahead."""

    def backlog(self, history: Sequence[int]) -> int:
        self.rest()
        return 1 if self._predrafts.has(history) else self._drafter.backlog(history)

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
        tried, ready = len(self._predrafts), self._predrafts.take(history)
        draft, positions = GrowingDraft(), list[Position]()
        for position in self._drawn(history, count, ready, draft):
            positions.append(position)
            if len(draft) == count or keep_on is None:
                continue
            if not keep_on(draft.confidence[-1], draft.evidence[-1]):
                break
        ahead = _outcome(tried, ready, len(draft)) if tried else None
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
        self._predrafts = Predrafts(self._committed)
        current = Round(
            history=tuple(history),
            drafted=draft.tokens,
            positions=positions,
            acceptance=self._acceptance(draft),
            longest=math.ceil(self._mean_length),
        )
        if self._split is not None:
            self._split.begin()
        self._worker.start(
            predrafting(self._drafter, self._sampler_ahead, current, self._predrafts, self._clock)
        )


def _outcome(drafts: int, ready: Predraft | None, used: int) -> Ahead:
    """What a round of drafts made ahead did for a draft of which used tokens were used."""
    if ready is None:
        return Ahead(drafts)
    share = min(used / len(ready.draft), 1.0)
    return Ahead(drafts, is_hit=True, hidden_seconds=share * ready.seconds)
