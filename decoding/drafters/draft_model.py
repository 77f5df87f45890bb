"""A drafter model: cheaper, of the same vocabulary, sampled from its own distribution.

It draws token by token, or in blocks: heads that draft a block in one pass.
"""

from collections.abc import Sequence
from copy import copy

from backends.base import BlockContext, Context, DeviceRow, DeviceSampling, Warping
from decoding.draft import (
    MOST_DRAFTED,
    NO_DRAFT,
    DeviceLine,
    Draft,
    KeepOn,
    evidence_class,
    with_confidence,
)
from decoding.drafters.base import GrowingDraft, Reader, ReadsBacklog
from decoding.joined_pass import SharedDrafter, forward, take_part
from decoding.sampling.distribution import next_uniforms, skip_uniforms, uniform
from decoding.sampling.sampler import Sampler


class DraftModel(ReadsBacklog[Reader]):
    """Samples tokens one after another, each from its warped q_draft.

    n_vocab is the target's: entries past it are padding.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = MOST_DRAFTED,
        is_certain: bool = False,
    ) -> None:
        """is_certain: drafts the likeliest token, where what it is drawn from cannot be told."""
        super().__init__(name, Reader(context), end_tokens)
        self._context = context
        self._n_vocab = n_vocab
        self._max_draft = max_draft
        self._is_certain = is_certain
        self.shared: SharedDrafter | None = None
        """How it drafts beside other replies; None if it does not."""

    def beside(self, sequence: Context) -> "DraftModel":
        """Another one for another reply, in a sequence of the same context."""
        other = copy(self)
        other._context, other._reader = sequence, Reader(sequence)  # noqa: SLF001 (of its own class)
        other.read_singly(self._reader.single_reads)
        return other

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        super().begin(history, sampler)
        if self.shared is not None:
            take_part(self._context, self.shared)

    def read_singly(self, count: int) -> None:
        """Read up to so many tokens one by one from now on, where that costs less."""
        self._reader.single_reads = count

    @property
    def draws_on_device(self) -> bool:
        """Whether its context can sample on the device, where q_draft then stays."""
        return self._context.device_sampling is not None

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._max_draft, self._reader.room(history))
        if count <= 0:
            return NO_DRAFT
        device, warping = self._context.device_sampling, self._sampler.warping
        if device is not None and warping is not None:
            return self._propose_on_device(device, warping, history, count, keep_on)
        return self._drawn(history, count, keep_on).done(self.name)

    def _drawn(self, history: Sequence[int], count: int, keep_on: KeepOn | None) -> GrowingDraft:
        """Tokens sampled to follow history, until the reply ends or the grammar fails."""
        draft, sampler = GrowingDraft(), self._sampler
        *_, (_, rows) = self._reader.rows(history)
        row = rows[0, : self._n_vocab]
        while (q_draft := sampler.q_draft(row, history, draft.tokens)) is not None:
            token = q_draft.mode if self._is_certain else q_draft.draw(uniform(sampler.drafting))
            draft.add(token, q_draft.of(token), None if self._is_certain else q_draft)
            if len(draft) == count or token in self.end_tokens or not draft.goes_on(keep_on):
                break
            row = forward(self._context, [token], 1)[0, : self._n_vocab]
        return draft

    def _propose_on_device(
        self,
        device: DeviceSampling,
        warping: Warping,
        history: Sequence[int],
        count: int,
        keep_on: KeepOn | None,
    ) -> Draft:
        """A draft sampled on the device, a few tokens between two calls of keep_on.

        Tokens sampled after an end token are dropped, which depends on earlier tokens alone.
        """
        pending = self._reader.pending(history, self._context.n_chunk)
        tokens: list[int] = []
        rows: list[DeviceRow] = []
        confidence: list[float] = []
        wants_more = True
        while wants_more and len(tokens) < count:
            at_once = count - len(tokens) if keep_on is None else min(_AT_ONCE, count - len(tokens))
            uniforms = next_uniforms(self._sampler.drafting, at_once)
            drawn = device.draft(pending, warping, uniforms, self._n_vocab)
            for token, row, probability in zip(
                drawn.tokens, drawn.rows, drawn.probabilities, strict=True
            ):
                tokens.append(token)
                rows.append(row)
                confidence.append(probability)
                skip_uniforms(self._sampler.drafting, 1)
                if token in self.end_tokens:
                    wants_more = False
                    break
                if keep_on is not None:
                    wants_more = keep_on(probability, evidence_class(probability))
            pending = tokens[-1:]
        return with_confidence(DeviceLine(tuple(tokens), tuple(rows)), self.name, confidence)


class BlockDraft(ReadsBacklog[Reader]):
    """Samples the tokens of a block, each from its own row, warped.

    A row depends on the text before it alone, and the line ends by what was sampled so far, so that
    it is verified like any other. n_vocab is the target's: entries past it are padding.
    """

    def __init__(
        self,
        name: str,
        context: BlockContext,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(name, Reader(context), end_tokens)
        self._context = context
        self._n_vocab = n_vocab

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._context.longest, self._reader.room(history))
        if count <= 0:
            return NO_DRAFT
        self._context.forward(self._reader.pending(history, self._context.n_chunk), 0)
        after, draft = self._context.draft(count), GrowingDraft()
        while (row := after(draft.tokens)) is not None:
            q_draft = self._sampler.q_draft(row[: self._n_vocab], history, draft.tokens)
            if q_draft is None:
                break
            token = q_draft.draw(uniform(self._sampler.drafting))
            draft.add(token, q_draft.of(token), q_draft)
            if token in self.end_tokens or not draft.goes_on(keep_on):
                break
        return draft.done(self.name)


def drafter_of_head(
    name: str,
    context: Context,
    *,
    n_vocab: int,
    end_tokens: frozenset[int] = frozenset(),
    is_certain: bool = False,
) -> DraftModel | BlockDraft:
    """A drafter of lines that draws token by token, or a block in one pass if its context does.

    n_vocab is the target's. is_certain: as of DraftModel.
    """
    if isinstance(context, BlockContext):
        return BlockDraft(name, context, n_vocab=n_vocab, end_tokens=end_tokens)
    return DraftModel(name, context, n_vocab=n_vocab, end_tokens=end_tokens, is_certain=is_certain)


_AT_ONCE = 2
"""Tokens that a device samples before keep_on is consulted."""
