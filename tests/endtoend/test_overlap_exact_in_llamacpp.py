"""Drafts made ahead on a thread leave what llama.cpp's model says as it is.

Pearson's chi-square over replies of three tokens. False alarms: a right program fails for one
choice of seeds in 10,000; the seeds are fixed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context
from decoding.draft import Draft, KeepOn, SampledLine
from decoding.drafters import overlapping as predrafting
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.overlapping import DrafterThread, Overlapping
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.chance import chance
from tests.fixtures.replied import replied, said
from tests.fixtures.workers import ThoroughThread, few

FALSE_ALARM = 1e-4
REPLIES = 1200
SETTINGS = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0)
PROMPT = [300, 301, 302, 303, 300, 301]
THREADS = {"all outcomes": ThoroughThread, "as many as there is time for": DrafterThread}


@pytest.fixture(scope="module")
def pair(tiny_llama: Callable[..., Path]) -> Iterator[tuple[Context, Context, int]]:
    """A model of random weights and a disturbed copy: they agree in part."""
    with (
        closing(llamacpp.load(tiny_llama(seed=1), threads=1)) as target,
        closing(llamacpp.load(tiny_llama(seed=1, noise=0.15), threads=1)) as drafter,
    ):
        yield target.open(256), drafter.open(256), target.info.n_vocab


class Counting(Overlapping):
    """Counts the drafts that were made ahead and used."""

    hits = 0

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        draft = super().propose(history, limit, keep_on)
        self.hits += draft.ahead is not None and draft.ahead.is_hit
        return draft


@pytest.fixture
def drafter(
    pair: tuple[Context, Context, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Counting]]:
    _, context, n_vocab = pair
    monkeypatch.setattr(predrafting, "likeliest_outcomes", lambda given: few(given, 4))
    made: list[Counting] = []

    def make(thread: type[DrafterThread], longest: int = 2) -> Counting:
        model = DraftModel("model", context, n_vocab=n_vocab, max_draft=longest)
        made.append(Counting(model, thread(), acceptance=lambda one: [0.6] * len(one), always=True))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("thread", THREADS)
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_greedy_reply_is_the_model_s_own(
    pair: tuple[Context, Context, int],
    drafter: Callable[..., Counting],
    thread: str,
    penalty: float,
) -> None:
    settings = SamplingSettings(temperature=0.0, repeat_penalty=penalty)
    limits = Limits(120, frozenset())
    plain = said(replied(pair[0], PROMPT, settings, limits, None))
    one = drafter(THREADS[thread], 4)
    for _ in range(2):
        steps = replied(pair[0], PROMPT, settings, limits, one)
        assert said(steps) == plain
        assert sum(step.accepted for step in steps) > 20
    if thread == "all outcomes":
        assert one.hits > 5


@pytest.mark.slow
@pytest.mark.parametrize("thread", THREADS)
def test_replies_follow_the_law_of_the_model(
    pair: tuple[Context, Context, int], drafter: Callable[..., Counting], thread: str
) -> None:
    one = drafter(THREADS[thread])
    count = REPLIES // 2
    assert chance(pair[0], PROMPT, SETTINGS, one, count, more=3, accepted=0.5) > FALSE_ALARM
    if thread == "all outcomes":
        assert one.hits > count // 10


@pytest.mark.slow
def test_control_a_draft_used_after_another_text_is_seen(
    pair: tuple[Context, Context, int],
    drafter: Callable[..., Counting],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if it had been drawn there: with the q_draft of the text that it now follows."""
    key, propose = Overlapping._key, Overlapping.propose
    monkeypatch.setattr(Overlapping, "_key", lambda one, text: key(one, text)[:-1])

    def claimed(one: Any, history: Sequence[int], limit: int, _: KeepOn | None = None) -> Draft:
        draft = propose(one, history, limit)
        if draft.ahead is None or not draft.ahead.is_hit:
            return draft
        one.rest()
        line, laws = draft.form, []
        for place in range(len(draft)):
            text = [*history, *draft.tokens[:place]]
            laws.append(one._sampler.distribution(one._drafter.logits(text), text))
        assert isinstance(line, SampledLine)
        return Draft(SampledLine(line.tokens, tuple(laws)), draft.drafter, draft.confidence)

    monkeypatch.setattr(Overlapping, "propose", claimed)
    one = drafter(ThoroughThread)
    assert chance(pair[0], PROMPT, SETTINGS, one, REPLIES, more=3, accepted=0.3) < FALSE_ALARM
