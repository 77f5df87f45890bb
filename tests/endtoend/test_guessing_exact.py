"""At temperature 1, jacobi and lookahead leave the law of a model of llama.cpp as it is.

Pearson's chi-square over replies of three tokens. False alarms: a right program fails for one
choice of seeds in 10,000; the seeds are fixed, so that it fails always or never. A penalty below 1
makes the small model repeat its text, so that guesses come true.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from decoding.draft import PointMassLine, PointMassTree

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from decoding.draft import Drafter
from decoding.drafters.jacobi import Jacobi
from decoding.drafters.lookahead import Lookahead, LookaheadShape
from decoding.sampling.distribution import Distribution, SamplingSettings, uniform
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, TreeRows, TreeVerdict, Verdict
from tests.fixtures.chance import chance

FALSE_ALARM = 1e-4
REPLIES = 1200
SETTINGS = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0, repeat_penalty=0.3)
PROMPT = [300, 301, 302, 303, 300, 301]
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "jacobi": lambda: Jacobi(max_draft=3),
    "lookahead": lambda: Lookahead(LookaheadShape(3, 3, 3)),
}


@pytest.fixture(scope="module")
def context(tiny_llama: Callable[..., Path]) -> Iterator[Context]:
    with closing(llamacpp.load(tiny_llama(seed=1), threads=1)) as model:
        yield model.open(64)


def likelihood(context: Context, drafter: Drafter) -> float:
    return chance(context, PROMPT, SETTINGS, drafter, REPLIES, more=2, accepted=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
def test_replies_follow_the_law_of_the_model(name: str, context: Context) -> None:
    assert likelihood(context, DRAFTERS[name]()) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_rule_for_temperature_0_is_seen(
    name: str, context: Context, monkeypatch: pytest.MonkeyPatch
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
    assert likelihood(context, DRAFTERS[name]()) < FALSE_ALARM


def _likeliest(p_target: Distribution) -> int:
    return int(p_target.ids[p_target.probabilities.argmax()])
