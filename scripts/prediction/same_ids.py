"""Whether a drafted greedy reply has the ids of plain decoding, and what explains others."""

from collections.abc import Sequence

from app.engine.session import Session
from decoding.checks.greedy_check import divergences


def difference(
    session: Session, prompt: Sequence[int], plain: Sequence[int], drafted: Sequence[int]
) -> str:
    """Where a drafted reply leaves the plain one, with the margin of logits; empty if nowhere.

    A tiny margin is a near-tie: passes over several tokens round differently in long texts.
    """
    if list(plain) == list(drafted):
        return ""
    with session.context.use() as context:
        for one in divergences(context, prompt, drafted):
            return f"other ids from token {one.position} on, by a margin of {one.margin:.4f}"
    return "other ids, each of which a plain pass gives too"
