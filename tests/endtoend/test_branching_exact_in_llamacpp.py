"""At temperature 1, trees and several lines of a drafter model leave llama.cpp's law as it is.

Pearson's chi-square over replies of three tokens. False alarms: a right program fails for one
choice of seeds in 10,000; the seeds are fixed, so that it fails always or never.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from decoding.draft import Drafter
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.several_paths import SeveralPaths
from decoding.drafters.trees import TreeShape
from decoding.estimation.cost import TreeSize
from decoding.sampling.distribution import Distribution, SamplingSettings
from decoding.verification import rules as block
from decoding.verification import rules as traversal
from decoding.verification.rules import scaled_residual
from tests.fixtures.chance import chance

FALSE_ALARM = 1e-4
REPLIES = 1200
"""So many that the wrong residual below is 3.8 of its own deviations beyond the threshold for
paths, and 8.3 for the drawn tree."""

SETTINGS = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0)
PROMPT = [300, 301, 302, 303, 300, 301]
SHAPE = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))

Make = Callable[[Context, int], Drafter]
DRAWN: dict[str, Make] = {
    "drawn tree": lambda context, n: SampledTree("a", context, SHAPE, n_vocab=n),
    "paths": lambda context, n: SeveralPaths("a", context, 2, 2, n_vocab=n),
}
MAKERS: dict[str, Make] = DRAWN | {
    "likeliest tree": lambda context, n: DynamicTree("a", context, TreeSize(2, 5), n_vocab=n),
}


@pytest.fixture(scope="module")
def pair(tiny_llama: Callable[..., Path]) -> Iterator[tuple[Context, Context, int]]:
    """A model of random weights and a disturbed copy: they agree in part."""
    with (
        closing(llamacpp.load(tiny_llama(seed=1), threads=1)) as target,
        closing(llamacpp.load(tiny_llama(seed=1, noise=0.15), threads=1)) as drafter,
    ):
        yield target.open(64), drafter.open(64), target.info.n_vocab


def likelihood(pair: tuple[Context, Context, int], make: Make) -> float:
    context, draft_context, n_vocab = pair
    drafter = make(draft_context, n_vocab)
    return chance(context, PROMPT, SETTINGS, drafter, REPLIES, more=3, accepted=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_replies_follow_the_law_of_the_model(name: str, pair: tuple[Context, Context, int]) -> None:
    assert likelihood(pair, MAKERS[name]) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_wrong_residual_is_seen(
    name: str, pair: tuple[Context, Context, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: after a rejection, drawing from p_target as it stands is lossy."""

    def whole_target(
        p_target: Distribution, q_draft: Distribution, share: float
    ) -> tuple[Distribution, float]:
        return p_target, scaled_residual(p_target, q_draft, share)[1]

    monkeypatch.setattr(block, "scaled_residual", whole_target)
    monkeypatch.setattr(traversal, "scaled_residual", whole_target)
    assert likelihood(pair, DRAWN[name]) < FALSE_ALARM
