"""Prefill: brings a context to hold given tokens, and reuses what it holds already."""

from collections.abc import Iterator, Sequence

import numpy as np

from backends.base import Context, Logits
from decoding.joined_pass import forward, piece

_FRAME = 16
"""Tokens at the end of a prompt that a chat template may write otherwise once the answer is known,
such as an opened block of reasoning. A guess; not measured."""

GROUP = 4
"""Tokens that kernels process together: passes over a prompt's end are whole groups but for the
last one, so that each token is computed in the group in which it would be in one pass."""

_UNBLOCKED = 16
"""Tokens at the end of a prompt that are never read in a block, more than a last word and what a
template has behind it (5 tokens in ChatML). So which blocks a prompt is read in is known while its
last word is typed, and none is to be read again at Enter. A guess; not measured."""

_WORTHWHILE = 64
"""New tokens of a prompt from which a checkpoint near its end is worth a pass of its own. A guess;
not measured."""


def common_prefix(held: Sequence[int], wanted: Sequence[int], known: int = 0) -> int:
    """Number of leading tokens that agree; the first known ones are assumed to."""
    shorter = min(len(held), len(wanted))
    if held[known:shorter] == wanted[known:shorter]:
        return shorter
    for position in range(known, shorter):
        if held[position] != wanted[position]:
            return position
    return shorter


def reuse(context: Context, tokens: Sequence[int], known: int = 0) -> int:
    """Truncate the context to its common prefix with tokens, without the last of these.

    Returns the number of tokens kept: fewer than these if it cannot go back to just there.
    """
    common = common_prefix(context.tokens, tokens, known)
    kept = context.rollback_to(min(common, len(tokens) - 1))
    context.truncate(kept)
    return kept


def read_prompt(context: Context, tokens: Sequence[int]) -> Iterator[tuple[int, Logits]]:
    """Prefill a prompt, and set checkpoints in a context with a running state.

    One is where the new part of the prompt begins, for another question in its place; one is near
    its end, for another answer. Yields as prefill does.
    """
    if context.state_bytes:
        context.checkpoint()
        if len(tokens) - context.length >= _WORTHWHILE:
            yield from prefill(context, tokens[:-_FRAME])
            context.checkpoint()
    yield from prefill(context, tokens)


def in_blocks(left: int, block: int) -> int:
    """How many of the last tokens of a prompt are read in blocks of so many tokens; 0 for none."""
    return max(0, left - _UNBLOCKED) // block * block if block else 0


def prefill(
    context: Context, tokens: Sequence[int], n_logits: int = 1
) -> Iterator[tuple[int, Logits]]:
    """Forward the tokens that the context lacks, in chunks: whole blocks, then less than a block.

    So a token is computed alike whether the rest of its prompt is known or not, but for a prompt
    that is read beside other replies, in the pieces that fit their passes. Yields (tokens
    held, logits) after each; the last logits have n_logits rows, 0 or 1, the others none.
    """
    while context.length < len(tokens):
        left = len(tokens) - context.length
        count = piece(context, left)
        if count == 0:  # it may be stopped while it waits
            yield context.length, np.empty((0, 0), np.float32)
            continue
        end = context.length + (count or _chunk(context, left))
        is_last = end == len(tokens)
        rows = forward(context, tokens[context.length : end], n_logits if is_last else 0)
        yield end, rows


def _chunk(context: Context, left: int) -> int:
    """How many of the tokens left of a prompt are read in the next pass."""
    block, most = context.exact_batch, context.n_chunk
    if blocks := in_blocks(left, block):
        return min(blocks, most // block * block)
    return block - GROUP if block and left >= block else min(left, most)
