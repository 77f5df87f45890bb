"""A drafter model: a cheaper model of the same vocabulary, sampled from its own distribution."""

from collections.abc import Sequence

from backends.base import Context, DeviceRow, DeviceSampling, Warping
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, KeepOn, evidence_class, with_confidence
from decoding.drafters.model.growing_draft import GrowingDraft
from decoding.drafters.model.reader import Reader
from decoding.drafters.model.reads_backlog import ReadsBacklog
from decoding.forms import DeviceLine
from decoding.sampling.distribution import next_uniforms, skip_uniforms, uniform

_AT_ONCE = 2
"""Tokens that a device samples before keep_on is consulted."""


class DraftModel(ReadsBacklog[Reader]):
    """Samples tokens one after another, each from its warped q_draft.

    n_vocab is the target's: entries past it are padding.
    """

    is_free = False

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = MOST_DRAFTED,
    ) -> None:
        super().__init__(Reader(context))
        self.name = name
        self._context = context
        self._n_vocab = n_vocab
        self._end_tokens = end_tokens
        self._max_draft = max_draft

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
        *_, (_, rows) = self._reader.rows(history)
        draft = GrowingDraft()
        while True:
            q_draft = self._sampler.distribution(rows[0, : self._n_vocab], history, draft.tokens)
            token = q_draft.draw(uniform(self._sampler.drafting))
            confidence = q_draft.of(token)
            evidence = evidence_class(confidence)
            draft.add(token, confidence, evidence, q_draft)
            if len(draft) == count or token in self._end_tokens:
                break
            if keep_on is not None and not keep_on(confidence, evidence):
                break
            rows = self._context.forward([token], 1)
        return draft.done(self.name)

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
                if token in self._end_tokens:
                    wants_more = False
                    break
                if keep_on is not None:
                    wants_more = keep_on(probability, evidence_class(probability))
            pending = tokens[-1:]
        return with_confidence(DeviceLine(tuple(tokens), tuple(rows)), self.name, confidence)
