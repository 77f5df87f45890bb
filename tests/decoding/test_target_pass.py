"""A pass of the target over a drawn draft: the right rule, exact, and the context left as it was.

Every outcome of the real pass over a context is enumerated.
"""

from collections.abc import Callable
from typing import Any

import pytest

from decoding.draft import Draft
from decoding.sampler import Sampler
from decoding.sampling import Distribution, point_mass
from decoding.shape import Siblings
from decoding.target_pass import judge, settle
from decoding.verification.siblings import without
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    Path,
    Prefix,
    Rows,
    draw,
    random_rows,
)
from tests.fixtures.one_step import distance_and_accepted

pytestmark = pytest.mark.usefixtures("symbolic")

START = 0
DraftWith = Callable[[Rows, Path], Draft]


def line(q_draft: Rows, path: Path) -> Draft:
    first = draw(q_draft(()), path)
    second = draw(q_draft((first,)), path)
    return Draft((first, second), "line", (0.5,) * 2, (q_draft(()), q_draft((first,))))


def alone(q_draft: Rows, path: Path) -> Draft:
    """Two children drawn independently, which may be alike, each with one below it; one is certain.

    Those below children that are alike may be alike too.
    """
    laws: list[Distribution] = [q_draft(()), q_draft((N_VOCAB,))]
    tokens = [draw(law, path) for law in laws]
    laws += [q_draft((tokens[0],)), point_mass(1)]
    tokens += [draw(law, path) for law in laws[2:]]
    return Draft(
        tuple(tokens),
        "tree",
        (0.5,) * 4,
        tuple(laws),
        parents=(-1, -1, 0, 1),
        siblings=Siblings.INDEPENDENT,
    )


def replaced(q_draft: Rows, path: Path) -> Draft:
    """Two children drawn without replacement, the second of which has one below it."""
    law = q_draft(())
    first = draw(law, path)
    rest = without(law, first)
    assert rest is not None
    second = draw(rest, path)
    below = q_draft((second,))
    return Draft(
        (first, second, draw(below, path)),
        "tree",
        (0.5,) * 3,
        (law, law, below),
        parents=(-1, -1, 1),
        siblings=Siblings.WITHOUT_REPLACEMENT,
    )


@pytest.mark.parametrize("draft_with", [line, alone, replaced])
@pytest.mark.parametrize("seed", range(2))
def test_a_pass_over_what_was_drawn_leaves_the_law_of_the_target(
    table: Callable[..., Any], fake_context: Callable[..., Any], draft_with: DraftWith, seed: int
) -> None:
    rows, q_draft = table(seed, N_VOCAB), random_rows(seed + 100, DENSE)

    def target(prefix: Prefix) -> Distribution:
        text = [START, *prefix]
        row = rows[text[-2] if len(text) > 1 else -1, text[-1]]
        return Sampler(DENSE).distribution(row, text)

    def step(prefix: Prefix, path: Path) -> Prefix:
        context, sampler = fake_context(rows), Sampler(DENSE)
        object.__setattr__(sampler, "verification", path)
        draft = draft_with(q_draft, path)
        path.is_ending = True
        judged = judge(context, [START], draft, sampler, lambda: 0.0)
        settle(context, 1, judged, len(judged.accepted))
        assert context.tokens == [START, *judged.accepted]
        assert context.forwards == [1 + nodes_of(draft)], "what is alike is run once"
        return (*judged.accepted, judged.next_token)

    assert distance_and_accepted(step, target, 3)[0] < 1e-9


def nodes_of(draft: Draft) -> int:
    """How many different texts the tokens of a draft end."""
    if draft.parents is None:
        return len(draft)
    texts: list[Prefix] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        texts.append((*(texts[parent] if parent >= 0 else ()), token))
    return len(set(texts))
