"""A drafter whose model drafts a block of tokens in one pass."""

from collections.abc import Sequence

from backends.base import BlockContext, Context
from decoding.draft import NO_DRAFT, Draft, KeepOn, evidence_class
from decoding.drafters.base import GrowingDraft, Reader, ReadsBacklog
from decoding.drafters.draft_model import DraftModel
from decoding.sampling.distribution import uniform


class BlockDraft(ReadsBacklog[Reader]):
    """Samples the tokens of a block, each from its own row, warped.

    A row depends on the text before it alone, and the line ends by what was sampled so far, so that
    it is verified like any other. n_vocab is the target's: entries past it are padding.
    """

    is_free = False

    def __init__(
        self,
        name: str,
        context: BlockContext,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(Reader(context))
        self.name = name
        self._context = context
        self._n_vocab = n_vocab
        self._end_tokens = end_tokens

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
            confidence = q_draft.of(token)
            evidence = evidence_class(confidence)
            draft.add(token, confidence, evidence, q_draft)
            if token in self._end_tokens:
                break
            if keep_on is not None and not keep_on(confidence, evidence):
                break
        return draft.done(self.name)


def drafter_of_head(
    name: str,
    context: Context,
    *,
    n_vocab: int,
    end_tokens: frozenset[int] = frozenset(),
) -> DraftModel | BlockDraft:
    """A drafter of lines that draws token by token, or a block in one pass if its context does.

    n_vocab is the target's.
    """
    if isinstance(context, BlockContext):
        return BlockDraft(name, context, n_vocab=n_vocab, end_tokens=end_tokens)
    return DraftModel(name, context, n_vocab=n_vocab, end_tokens=end_tokens)
