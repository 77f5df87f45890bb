"""With retrieval the tokens and the law stay the target's own, whatever the index holds.

Sampled replies are compared with the exact law by a chi-square test, which rejects a right program
for one choice of seeds in 10,000; the seeds are fixed. A wrong rule is shown to be rejected.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.checks.distribution_check import exact_distribution, p_value
from decoding.draft import HostLine
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings, uniform
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, Verdict
from tests.fixtures.chance import SHORT, replies
from tests.fixtures.corpora import corpus_of, document
from tests.fixtures.replied import said

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

MakeTable = Callable[..., NDArray[np.float32]]
Open = Callable[..., "FakeContext"]

N_VOCAB = 6
FALSE_ALARM = 1e-4
REPLIES = 1000
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.2, top_k=4, top_p=0.97, min_p=0.02, repeat_penalty=1.2)
PROMPT = [1, 2, 3, 4, 5]


def drafter(folder: Path, seed: int) -> Retrieval:
    """Retrieval of random text, in which every few tokens occur."""
    generator = np.random.default_rng(seed)
    texts = [document(n, generator.integers(0, N_VOCAB, 200).tolist()) for n in range(20)]
    return Retrieval(corpus_of(folder, texts[:10], texts[10:]), min_match=1)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_replies_are_those_of_plain_decoding(
    table: MakeTable, fake_context: Open, tmp_path: Path, settings: SamplingSettings
) -> None:
    drafted = accepted = 0
    for seed in range(10):
        target, seeded = table(seed, N_VOCAB), replace(settings, seed=seed)
        plain = steps(fake_context(target), seeded, None)
        found = steps(fake_context(target), seeded, drafter(tmp_path / str(seed), seed))
        assert said(found) == said(plain)
        drafted += sum(step.drafted for step in found)
        accepted += sum(step.accepted for step in found)
    assert drafted > accepted > 0


def steps(
    context: "FakeContext", settings: SamplingSettings, drafter: Retrieval | None
) -> list[Step]:
    limits = Limits(50, frozenset())
    events = generate(context, PROMPT, settings, limits, drafters=always(drafter))
    return [event for event in events if isinstance(event, Step)]


def chance(table: MakeTable, fake_context: Open, folder: Path) -> float:
    """How likely a correct loop is to give replies as far from the law as these."""
    context = fake_context(table(7, N_VOCAB))
    drawn: Counter[tuple[int, ...]] = Counter()
    drafted = 0
    for outcome, tokens in replies(context, PROMPT, SAMPLED, drafter(folder, 0), REPLIES):
        drawn[outcome] += 1
        drafted += tokens
    assert drafted >= REPLIES
    return p_value(exact_distribution(context, PROMPT, SAMPLED, SHORT), drawn)


@pytest.mark.slow
def test_sampled_replies_follow_the_target(
    table: MakeTable, fake_context: Open, tmp_path: Path
) -> None:
    assert chance(table, fake_context, tmp_path) > FALSE_ALARM


def test_control_the_test_sees_a_wrong_rule(
    table: MakeTable, fake_context: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking every drafted token that the target could say is lossy."""

    def lenient(target: TargetRows, draft: HostLine, generator: np.random.Generator) -> Verdict:
        count = 0
        while count < len(draft.tokens) and target[count].of(draft.tokens[count]) > 0.0:
            count += 1
        return Verdict(count, target[count].draw(uniform(generator)))

    monkeypatch.setattr(target_pass, "verify", lenient)
    assert chance(table, fake_context, tmp_path) < FALSE_ALARM
