"""Prefill: brings a context to hold given tokens, and reuses what it holds already."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits


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

    Returns the number of tokens kept; 0 if it would have to roll back and cannot.
    """
    kept = min(common_prefix(context.tokens, tokens, known), len(tokens) - 1)
    if kept < context.length and not context.can_roll_back:
        kept = 0
    context.truncate(kept)
    return kept


def prefill(context: Context, tokens: Sequence[int]) -> Iterator[tuple[int, Logits]]:
    """Forward the tokens that the context lacks, in chunks.

    Yields (tokens held, logits) after each; the last logits have one row, the others none.
    """
    while context.length < len(tokens):
        end = min(context.length + context.n_chunk, len(tokens))
        rows = context.forward(tokens[context.length : end], int(end == len(tokens)))
        yield end, rows
