"""Whether drafting changes a greedy reply, and if so whether rounding can be blamed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Context
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import prefill
from decoding.sampling import SamplingSettings

_GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two replies differ; margin is in logits of a plain pass."""

    position: int
    plain: int
    drafted: int
    margin: float


def greedy_reply(
    context: Context, prompt: Sequence[int], limits: Limits, drafter: Drafter | None
) -> Iterator[Step]:
    """The steps of a greedy reply from an empty cache."""
    context.truncate(0)
    for event in generate(context, prompt, _GREEDY, limits, drafter=drafter):
        if isinstance(event, Step):
            yield event


def first_divergence(
    context: Context, prompt: Sequence[int], plain: Sequence[int], drafted: Sequence[int]
) -> Divergence | None:
    """Where drafted leaves plain, None where they agree as far as both go."""
    for position, (ours, theirs) in enumerate(zip(plain, drafted, strict=False)):
        if ours != theirs:
            context.truncate(0)
            *_, (_, rows) = prefill(context, [*prompt, *plain[:position]])
            return Divergence(position, ours, theirs, float(rows[0, ours] - rows[0, theirs]))
    return None


def kernel_difference(context: Context, tokens: Sequence[int], most: int) -> float:
    """How far logits move between passes over one token and over several, up to most at once.

    0.0 means that a draft cannot change a rounding. tokens are a text to try it on, longer than
    most; its beginning is only read.
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
    """How far logits move where tokens before were kept from branches, instead of from a line.

    A cache may then hold them in another order, and add them up so. Of tokens the second half is
    tried; the context has to be one that can verify trees.
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
