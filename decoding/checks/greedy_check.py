"""Checks whether drafting changes a greedy reply, and whether rounding explains a change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Context
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.prefill import prefill
from decoding.sampling.settings import SamplingSettings

_GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that differs from plain decoding's after the same text.

    margin: difference of the logits of both tokens in a plain pass.
    """

    position: int
    plain: int
    drafted: int
    margin: float


def greedy_reply(
    context: Context, prompt: Sequence[int], limits: Limits, drafter: Drafter | None
) -> Iterator[Step]:
    context.truncate(0)
    for event in generate(context, prompt, _GREEDY, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            yield event


def divergences(
    context: Context, prompt: Sequence[int], reply: Sequence[int]
) -> Iterator[Divergence]:
    """Tokens of a greedy reply that differ from plain decoding's after the reply's own text.

    Each is compared with a pass over the single token before it, as in plain decoding, also after a
    divergence.
    """
    context.truncate(0)
    *_, (_, rows) = prefill(context, prompt)
    for position, token in enumerate(reply):
        row = rows[-1]
        likeliest = int(row.argmax())
        if likeliest != token:
            yield Divergence(position, likeliest, token, float(row[likeliest] - row[token]))
        if position + 1 < len(reply):
            rows = context.forward([token], 1)


def kernel_difference(context: Context, tokens: Sequence[int], most: int) -> float:
    """The largest change of a logit between passes over one token and over up to most tokens.

    0.0 means that a draft cannot change a rounding. tokens: a text longer than most, of which only
    the last most tokens are compared.
    """
    start = len(tokens) - most
    tested = tokens[start:]
    largest = 0.0
    context.truncate(0)
    for _ in prefill(context, tokens[:start]):
        pass
    context.checkpoint()
    alone = np.stack([context.forward([token], 1)[0].copy() for token in tested])
    for count in range(2, most + 1):
        context.truncate(start)
        batched = context.forward(tested[:count], count)
        largest = max(largest, float(np.abs(batched - alone[:count]).max()))
    return largest


def branch_difference(context: Context, tokens: Sequence[int]) -> float:
    """The largest change of a logit if the tokens before it were committed from branches.

    A cache may then hold them in another order, which changes sums. The second half of tokens is
    tested, in a context that can verify trees.
    """
    start = len(tokens) // 2
    tested = tokens[start:]
    context.truncate(0)
    for _ in prefill(context, tokens[:start]):
        pass
    expected = np.stack([context.forward([token], 1)[0].copy() for token in tested])
    context.truncate(start)
    largest = 0.0
    for index, token in enumerate(tested):
        if index % 4 == 0:  # commit the last of four branches; the next three fill the gap
            row = context.forward_tree([*tokens[:3], token], [-1] * 4)[3].copy()
            context.commit([3])
        else:
            row = context.forward([token], 1)[0]
        largest = max(largest, float(np.abs(row - expected[index]).max()))
    return largest
