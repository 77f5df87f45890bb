"""Checks whether drafting changes a greedy reply, and whether rounding explains a change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Context
from decoding.current_drafter import always
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import prefill
from decoding.sampling.distribution import SamplingSettings

_GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that is not plain decoding's after the same text.

    margin: how far its logit is below that of plain decoding's token, in a plain pass.
    """

    position: int
    plain: int
    drafted: int
    margin: float


def greedy_reply(
    context: Context, prompt: Sequence[int], limits: Limits, drafter: Drafter | None
) -> Iterator[Step]:
    """The steps of a greedy reply from an empty cache."""
    context.truncate(0)
    for event in generate(context, prompt, _GREEDY, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            yield event


def divergences(
    context: Context, prompt: Sequence[int], reply: Sequence[int]
) -> Iterator[Divergence]:
    """Tokens of a greedy reply that are not plain decoding's, each after the text as it is.

    Each is compared with a pass over the token before it alone, as in plain decoding; what follows
    a near-tie is compared too.
    """
    context.truncate(0)
    *_, (_, rows) = prefill(context, prompt)
    for position, said in enumerate(reply):
        row = rows[-1]
        likeliest = int(row.argmax())
        if likeliest != said:
            yield Divergence(position, likeliest, said, float(row[likeliest] - row[said]))
        if position + 1 < len(reply):
            rows = context.forward([said], 1)


def kernel_difference(context: Context, tokens: Sequence[int], most: int) -> float:
    """The largest change of a logit between passes over one token and over up to most tokens.

    0.0 means that a draft cannot change a rounding. tokens: a text longer than most, whose
    beginning is only read.
    """
    begun = len(tokens) - most
    tried = tokens[begun:]
    largest = 0.0
    context.truncate(0)
    for _ in prefill(context, tokens[:begun]):
        pass
    alone = np.stack([context.forward([token], 1)[0].copy() for token in tried])
    for count in range(2, most + 1):
        context.truncate(begun)
        together = context.forward(tried[:count], count)
        largest = max(largest, float(np.abs(together - alone[:count]).max()))
    return largest


def branch_difference(context: Context, tokens: Sequence[int]) -> float:
    """The largest change of a logit where the tokens before it come from branches, not from lines.

    A cache may then hold them in another order, and sum them in it. The second half of tokens is
    tried, in a context that can verify trees.
    """
    begun = len(tokens) // 2
    tried = tokens[begun:]
    context.truncate(0)
    for _ in prefill(context, tokens[:begun]):
        pass
    expected = np.stack([context.forward([token], 1)[0].copy() for token in tried])
    context.truncate(begun)
    largest = 0.0
    for place, token in enumerate(tried):
        if place % 4 == 0:  # the last of four branches, and the next three fill the gap before it
            row = context.forward_tree([*tokens[:3], token], [-1] * 4)[3].copy()
            context.commit([3])
        else:
            row = context.forward([token], 1)[0]
        largest = max(largest, float(np.abs(row - expected[place]).max()))
    return largest
