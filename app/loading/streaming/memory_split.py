"""What memory is worth most to a model that streams: more of its weights, or a drafter."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from decoding.draft import MOST_DRAFTED

LONGEST = 1 + MOST_DRAFTED
"""Tokens of a pass considered at most."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter that could be held in memory.

    draw_seconds: for one drafted token. acceptance: share of its tokens that are accepted;
    is_measured: with this very model, else it is a prior.
    """

    name: str
    memory_bytes: int
    draw_seconds: float
    acceptance: float
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """The best use of memory. drafter: None if weights alone are held; rate: tokens per second.

    length: drafted tokens of a pass.
    """

    drafter: Contender | None
    length: int
    rate: float


def best_split(
    contenders: Iterable[Contender], seconds: Callable[[int, int], float], budget: int
) -> Split:
    """The drafter and draft length with the most tokens per second.

    seconds: of a pass, by the bytes that a drafter takes from held weights, and by its tokens.
    budget: bytes for held weights and a drafter together; larger drafters are left out. Expected
    tokens of a pass are 1 + a + ... + a^length for an acceptance a (Leviathan et al. 2023, "Fast
    inference from transformers via speculative decoding", eq. 1). Of equals the first one wins,
    and no drafter at all before any.
    """
    best = Split(None, 0, 1.0 / seconds(0, 1))
    for one in contenders:
        if one.memory_bytes > budget:
            continue
        expected = joint = 1.0
        for length in range(1, LONGEST):
            joint *= one.acceptance
            expected += joint
            spent = seconds(one.memory_bytes, length + 1) + length * one.draw_seconds
            if expected / spent > best.rate:
                best = Split(one, length, expected / spent)
    return best
