"""Replies that heads draft for, as lines and as trees, are the model's own.

Heads of random weights are seldom right, so that nearly every step takes drafts back; the oracle is
always right, so that no step does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Logits
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.heads.chain import ChainContext
from backends.llamacpp.heads.head import load_head
from decoding.checks.distribution_check import divergences
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.sampled_tree import SampledTree
from decoding.drafters.trees import DynamicTree, TreeShape
from decoding.estimation.cost import TreeSize
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.chance import chance
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.head_pair import Opened
from tests.fixtures.tiny.heads import SAID, write_eagle3
from tests.fixtures.tiny.kinds import Tiny, target_of

GREEDY = SamplingSettings(temperature=0.0)
TOKENS = 128
LIMITS = Limits(TOKENS, frozenset())
N_CTX = 256
SHAPE = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))
PROMPT = [300, 301, 302, 303, 300, 301]
SAMPLED = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0)
FALSE_ALARM, REPLIES = 1e-4, 300
NEAR_TIE = 0.03
"""Logits further apart than this cannot have been turned by rounding: passes over several tokens,
and caches in the order of a tree's branches, change logits of 6 by up to 0.0115."""

COMMON = 12
"""Tokens that the head drafts from, the likeliest ones after the prompt, so that some are right."""

Make = Callable[[Context, int], Drafter]
MAKERS: dict[str, Make] = {
    "line": lambda context, n: DraftModel("a", context, n_vocab=n, max_draft=4),
    "likeliest tree": lambda context, n: DynamicTree("a", context, TreeSize(3, 8), n_vocab=n),
    "drawn tree": lambda context, n: SampledTree("a", context, SHAPE, n_vocab=n),
}


Target = Callable[[str], tuple[llamacpp.LlamaModel, LlamaContext]]


@pytest.fixture(scope="module")
def target(tiny: Tiny) -> Iterator[Target]:
    """The model of a head, and a context of it."""
    with ExitStack() as stack:

        @cache
        def opened(kind: str) -> tuple[llamacpp.LlamaModel, LlamaContext]:
            path = tiny(target_of(kind))
            model = stack.enter_context(closing(llamacpp.load(path, threads=1)))
            context = model.open(N_CTX)
            assert isinstance(context, LlamaContext)
            return model, context

        yield opened


def prompts(count: int) -> list[list[int]]:
    random = np.random.default_rng(7)
    return [random.integers(3, 354, 8 + 5 * number).tolist() for number in range(count)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("eagle3", 1),
        ("eagle3-borrowing", 1),
        ("glm4moe", 1),
        pytest.param("eagle3", 6, marks=pytest.mark.slow),
        pytest.param("glm4moe", 6, marks=pytest.mark.slow),
    ],
)
def test_greedy_replies_are_plain_decodings_but_for_near_ties(
    tiny: Tiny, target: Target, kind: str, name: str, count: int
) -> None:
    model, context = target(kind)
    with closing(load_head(tiny(kind), model, context)) as head:
        drafter = MAKERS[name](head.open(N_CTX), model.info.n_vocab)
        for prompt in prompts(count):
            steps = replied(context, prompt, GREEDY, LIMITS, drafter)
            found = said(steps)
            assert len(found) == TOKENS
            assert sum(step.drafted for step in steps) > TOKENS
            assert all(one.margin < NEAR_TIE for one in divergences(context, prompt, found))


class Oracle:
    """Lets a head's logits say what a text has next."""

    def __init__(self, context: ChainContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text: Sequence[int] = ()
        self._context = context
        self._logits = context._logits
        monkeypatch.setattr(context, "_logits", self._fed)

    def _fed(self, count: int) -> Logits:
        rows = self._logits(count).copy()
        rows[-1] = 0.0
        rows[-1, self.text[self._context.length]] = 50.0
        return rows


@pytest.mark.parametrize("kind", ["eagle3", "glm4moe", "step35"])
def test_a_head_that_is_always_right_is_fully_accepted(
    tiny: Tiny, target: Target, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what comes after a near-tie, where the reply takes another way."""
    model, context = target(kind)
    with closing(load_head(tiny(kind), model, context)) as head:
        opened = head.open(N_CTX)
        assert isinstance(opened, ChainContext)
        oracle = Oracle(opened, monkeypatch)
        drafter = MAKERS["line"](opened, model.info.n_vocab)
        same = 0
        for prompt in prompts(4):
            expected = said(replied(context, prompt, GREEDY, LIMITS, None))
            oracle.text = [*prompt, *expected, *[3] * 8]
            steps = replied(context, prompt, GREEDY, LIMITS, drafter)
            assert all(one.margin < NEAR_TIE for one in divergences(context, prompt, said(steps)))
            if said(steps) == expected:
                same += 1
                assert all(step.accepted == step.drafted for step in steps)
                assert len(steps) <= TOKENS // 5 + 2
        assert same > 0


@pytest.fixture(scope="module")
def guessing(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head whose few tokens are the likeliest ones."""
    _, context = target("eagle3")
    context.truncate(0)
    first = context.forward(PROMPT, 1)[0].copy()
    total = np.exp(first - first.max())
    for token in np.argsort(-first)[:6].tolist():
        row = context.forward([token], 1)[0]
        total += np.exp(row - row.max())
        context.truncate(len(PROMPT))
    drafted = sorted(np.argsort(-total)[:COMMON].tolist())
    return write_eagle3(tmp_path_factory.mktemp("head") / "head.gguf", drafted=drafted)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_sampled_replies_follow_the_law_of_the_model(
    target: Target, guessing: Path, name: str
) -> None:
    """Pearson's chi-square over replies of three tokens; the seeds are fixed."""
    model, context = target("eagle3")
    with closing(load_head(guessing, model, context)) as head:
        drafter = MAKERS[name](head.open(N_CTX), model.info.n_vocab)
        found = chance(context, PROMPT, SAMPLED, drafter, REPLIES, more=3, accepted=0.2)
    assert found > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_sampled_replies_with_next_token_layers_follow_the_law_of_the_model(
    talkative: Opened, name: str
) -> None:
    with talkative("glm4moe") as pair:
        drafter = MAKERS[name](pair.drafts, pair.model.info.n_vocab)
        settings = replace(SAMPLED, top_k=len(SAID) // 2)
        found = chance(pair.context, PROMPT, settings, drafter, REPLIES, more=3, accepted=0.2)
    assert found > FALSE_ALARM
