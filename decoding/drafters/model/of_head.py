"""The drafter that draws from a context of a model or a head, by how that drafts."""

from backends.base import BlockContext, Context
from decoding.drafters.model.block_draft import BlockDraft
from decoding.drafters.model.draft_model import DraftModel


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
