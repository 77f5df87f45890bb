"""Prefill: brings a context to hold given tokens, and reuses what it holds already."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits

_FRAME = 16
"""Tokens at the end of a prompt that a chat template may write otherwise once the answer is known,
such as an opened block of reasoning. A guess; not measured."""

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
    kept = context.reachable(min(common, len(tokens) - 1))
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


def prefill(
    context: Context, tokens: Sequence[int], n_logits: int = 1
) -> Iterator[tuple[int, Logits]]:
    """Forward the tokens that the context lacks, in chunks, the last of them in whole blocks first.

    So a token is computed alike whether the rest of its prompt is known or not. Yields (tokens
    held, logits) after each; the last logits have n_logits rows, 0 or 1, the others none.
    """
    while context.length < len(tokens):
        end = min(context.length + context.n_chunk, len(tokens))
        count = end - context.length
        if context.block and count > context.block:
            end -= count % context.block
        is_last = end == len(tokens)
        rows = context.forward(tokens[context.length : end], n_logits if is_last else 0)
        yield end, rows
