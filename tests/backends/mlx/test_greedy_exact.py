"""At temperature 0 drafting gives the token ids of plain decoding, on small models of each kind."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")

from backends import mlx
from backends.base import Context
from decoding.checks.distribution_check import greedy_reply
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram
from decoding.generation import Limits
from tests.fixtures.mlx_models import HYBRIDS, KINDS, N_VOCAB
from tests.fixtures.replied import said

LIMITS = Limits(64, frozenset())
PROMPTS = (
    "Once upon a time, 12 things",
    "the rain in Spain stays on the hill, the rain in Spain stays",
)
ALL = (*KINDS, *HYBRIDS[1:])
NOISE = {
    "plain": 0.03,
    "sliding": 0.02,
    "experts": 0.02,
    "hybrid": 0.02,
    "deltanet": 0.02,
    "mamba2": 0.02,
}
"""By which a drafter's weights are disturbed, so that it is right often and wrong often."""


class Repeater(PromptLookup):
    """Prompt lookup that goes by one token, so that random text gives it enough to propose."""

    def __init__(self) -> None:
        super().__init__(min_match=1)


def reply(
    context: Context, prompt: list[int], drafter: Drafter | None
) -> tuple[list[int], int, int]:
    """Token ids, tokens drafted, tokens accepted."""
    steps = list(greedy_reply(context, prompt, LIMITS, drafter))
    ids = said(steps)
    return ids, sum(step.drafted for step in steps), sum(step.accepted for step in steps)


@pytest.mark.parametrize("kind", ALL)
def test_prompt_lookup_changes_nothing(kind: str, small_mlx: Callable[..., Path]):
    model = mlx.load(small_mlx(kind))
    context, drafted = model.open(256), 0
    for text in PROMPTS:
        prompt = model.tokenizer.encode(text, special=False)
        plain, _, _ = reply(context, prompt, None)
        ids, tried, _ = reply(context, prompt, Repeater())
        assert ids == plain
        assert len(set(plain)) > 20
        drafted += tried
    assert drafted > 0


@pytest.mark.parametrize("kind", ALL)
def test_what_was_learned_changes_nothing(kind: str, small_mlx: Callable[..., Path]):
    """Each prompt is answered again by a drafter that heard the answers before."""
    model = mlx.load(small_mlx(kind))
    context, drafter, drafted, accepted = model.open(256), Ngram(), 0, 0
    for text in (*PROMPTS, *PROMPTS):
        prompt = model.tokenizer.encode(text, special=False)
        plain, _, _ = reply(context, prompt, None)
        ids, tried, right = reply(context, prompt, drafter)
        assert ids == plain
        drafted, accepted = drafted + tried, accepted + right
    assert drafted > 0
    assert accepted > 0


@pytest.mark.parametrize("kind", sorted(NOISE))
def test_a_drafter_model_changes_nothing(kind: str, small_mlx: Callable[..., Path]):
    target = mlx.load(small_mlx(kind))
    other = mlx.load(small_mlx(kind, noise=NOISE[kind]))
    context, drafted, accepted = target.open(256), 0, 0
    drafter = DraftModel("other", other.open(256), n_vocab=N_VOCAB, max_draft=4)
    for text in PROMPTS:
        prompt = target.tokenizer.encode(text, special=False)
        plain, _, _ = reply(context, prompt, None)
        ids, tried, right = reply(context, prompt, drafter)
        assert ids == plain
        drafted, accepted = drafted + tried, accepted + right
    assert 0.1 < accepted / drafted < 0.95, "both outcomes are to be tried often"
