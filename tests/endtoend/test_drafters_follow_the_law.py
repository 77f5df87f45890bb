"""At temperature 1, whatever a drafter proposes leaves the law of a model of llama.cpp as it is.

Pearson's chi-square over replies of three tokens. False alarms: a right program fails for one
choice of seeds in 10,000; the seeds are fixed, so that it fails always or never.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from decoding.draft import Drafter, PointMassLine, PointMassTree
from decoding.drafters.dynamic_tree import DynamicTree
from decoding.drafters.jacobi import Jacobi
from decoding.drafters.lookahead import Lookahead, LookaheadShape
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.several_paths import SeveralPaths
from decoding.drafters.trees import TreeShape
from decoding.estimation.cost import TreeSize
from decoding.sampling.distribution import Distribution, SamplingSettings, uniform
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, TreeRows, TreeVerdict, Verdict
from tests.fixtures.chance import chance
from tests.fixtures.wrong_rules import forget_residual

pytestmark = pytest.mark.slow

FALSE_ALARM = 1e-4
REPLIES = 1200
"""So many that the wrong residual below is 3.8 of its own deviations beyond the threshold for
paths, and 8.3 for the drawn tree."""

SAMPLED = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0)
REPEATING = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0, repeat_penalty=0.3)
"""A penalty below 1 makes the small model repeat its text, so that guesses come true."""

PROMPT = [300, 301, 302, 303, 300, 301]
SHAPE = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))

Make = Callable[[Context, int], Drafter]
GUESSES: dict[str, Make] = {
    "jacobi": lambda context, n: Jacobi(max_draft=3),
    "lookahead": lambda context, n: Lookahead(LookaheadShape(3, 3, 3)),
}
DRAWN: dict[str, Make] = {
    "drawn tree": lambda context, n: SampledTree("a", context, SHAPE, n_vocab=n),
    "paths": lambda context, n: SeveralPaths("a", context, 2, 2, n_vocab=n),
}
MAKERS: dict[str, Make] = {
    **GUESSES,
    **DRAWN,
    "likeliest tree": lambda context, n: DynamicTree("a", context, TreeSize(2, 5), n_vocab=n),
}
Pair = tuple[Context, Context, int]


@pytest.fixture(scope="module")
def pair(tiny_llama: Callable[..., Path]) -> Iterator[Pair]:
    """A model of random weights and a disturbed copy: they agree in part."""
    with (
        closing(llamacpp.load(tiny_llama(seed=1), threads=1)) as target,
        closing(llamacpp.load(tiny_llama(seed=1, noise=0.15), threads=1)) as drafter,
    ):
        yield target.open(64), drafter.open(64), target.info.n_vocab


def likelihood(pair: Pair, name: str) -> float:
    context, beside, n_vocab = pair
    drafter = MAKERS[name](beside, n_vocab)
    if name in GUESSES:
        return chance(context, PROMPT, REPEATING, drafter, REPLIES, more=2, accepted=0.1)
    return chance(context, PROMPT, SAMPLED, drafter, REPLIES, more=3, accepted=0.5)


@pytest.mark.parametrize("name", MAKERS)
def test_replies_follow_the_law_of_the_model(name: str, pair: Pair) -> None:
    assert likelihood(pair, name) > FALSE_ALARM


@pytest.mark.parametrize("name", DRAWN)
def test_a_wrong_residual_is_seen(name: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: after a rejection, drawing from p_target as it stands is lossy."""

    forget_residual(monkeypatch)
    assert likelihood(pair, name) < FALSE_ALARM


@pytest.mark.parametrize("name", GUESSES)
def test_a_rule_for_temperature_0_is_seen(
    name: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: a guess that the model finds likeliest is taken at any temperature."""

    def line(target: TargetRows, draft: PointMassLine, generator: np.random.Generator) -> Verdict:
        accepted = 0
        while accepted < len(draft.tokens) and draft.tokens[accepted] == _likeliest(
            target[accepted]
        ):
            accepted += 1
        return Verdict(accepted, target[accepted].draw(uniform(generator)))

    def tree(target: TreeRows, draft: PointMassTree, generator: np.random.Generator) -> TreeVerdict:
        drafted = len(draft.tokens) - draft.window_tokens
        path: list[int] = []
        nodes = {(draft.parents[node], draft.tokens[node]): node for node in range(drafted)}
        while (
            child := nodes.get((path[-1] if path else -1, _likeliest(target[path])))
        ) is not None:
            path.append(child)
        return TreeVerdict(tuple(path), target[path].draw(uniform(generator)))

    monkeypatch.setattr(target_pass, "verify", line)
    monkeypatch.setattr(target_pass, "verify_point_mass_tree", tree)
    assert likelihood(pair, name) < FALSE_ALARM


def _likeliest(p_target: Distribution) -> int:
    return int(p_target.ids[p_target.probabilities.argmax()])
