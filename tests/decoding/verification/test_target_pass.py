"""A pass of the target over a drawn draft: the right rule, exact, and the context left as it was.

Every outcome of the real pass over a context is enumerated.
"""

from collections.abc import Callable
from typing import Any

import pytest

from decoding.draft import Draft, Form, SampledLine, TreeWithoutReplacement
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler
from decoding.verification.rules import without
from decoding.verification.target_pass import judge, settle
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
FormWith = Callable[[Rows, Path], Form]


def line(q_draft: Rows, path: Path) -> SampledLine:
    first = draw(q_draft(()), path)
    second = draw(q_draft((first,)), path)
    return SampledLine((first, second), (q_draft(()), q_draft((first,))))


def tree(q_draft: Rows, path: Path) -> TreeWithoutReplacement:
    """Two children drawn without replacement, the second of which has one below it."""
    law = q_draft(())
    first = draw(law, path)
    rest = without(law, first)
    assert rest is not None
    second = draw(rest, path)
    below = q_draft((second,))
    tokens = (first, second, draw(below, path))
    return TreeWithoutReplacement(tokens, (-1, -1, 1), (law, law, below))


@pytest.mark.parametrize("form_with", [line, tree])
@pytest.mark.parametrize("seed", range(2))
def test_a_pass_over_what_was_drawn_leaves_the_law_of_the_target(
    table: Callable[..., Any], fake_context: Callable[..., Any], form_with: FormWith, seed: int
) -> None:
    rows, q_draft = table(seed, N_VOCAB), random_rows(seed + 100, DENSE)

    def target(prefix: Prefix) -> Distribution:
        text = [START, *prefix]
        row = rows[text[-2] if len(text) > 1 else -1, text[-1]]
        return Sampler(DENSE).distribution(row, text)

    def step(prefix: Prefix, path: Path) -> Prefix:
        context, sampler = fake_context(rows), Sampler(DENSE)
        object.__setattr__(sampler, "verification", path)
        form = form_with(q_draft, path)
        draft = Draft(form, "any", (0.5,) * len(form.tokens))
        path.is_ending = True
        judged = judge(context, [START], draft, sampler, lambda: 0.0)
        settle(context, 1, judged, len(judged.accepted))
        assert context.tokens == [START, *judged.accepted]
        assert context.forwards == [1 + len(draft)]
        return (*judged.accepted, judged.next_token)

    assert distance_and_accepted(step, target, 3)[0] < 1e-9
