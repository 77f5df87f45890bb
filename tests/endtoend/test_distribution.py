"""At temperature > 0 the whole stack draws from the target's own distribution.

Pearson's chi-square over the first five tokens, of which the last four come out of drafting and
verification: a rule that judges a draft as a whole differs from one that does not from its second
token on. False alarms: a correct engine fails for one choice of seeds in 10,000; the seeds are
fixed, so that it fails always or never.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Model
from decoding.checks.distribution_check import LENGTH, Outcome, exact_distribution, p_value, reply
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.vote import Vote
from decoding.estimation.cost import CostModel
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from decoding.verification import target_pass
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from tests.fixtures.first_hit import FirstHit
from tests.fixtures.wrong_rules import first_failure

FALSE_ALARM = 1e-4
SETTINGS = SamplingSettings(1.0, top_k=2, top_p=0.97, min_p=0.02, repeat_penalty=1.3)
PROMPT = [300, 301, 302, 303, 300, 301]
REPLIES = 1500


def _chance(
    context: Context, prompt: Sequence[int], drafter: Drafter, count: int, least: int = 4
) -> float:
    """How likely a correct engine is to give replies as far from the law as these.

    Most replies have a draft of at least so many tokens, all of which the law reaches.
    """
    law = exact_distribution(context, prompt, SETTINGS)
    drawn: Counter[Outcome] = Counter()
    long = 0
    for seed in range(count):
        outcome, steps = reply(context, prompt, replace(SETTINGS, seed=seed), drafter)
        drawn[outcome] += 1
        long += any(step.drafted >= least for step in steps)
    assert least < LENGTH
    assert long > 0.9 * count, "drafts are too short to tell"
    assert len(law) > 10, "too few outcomes to tell anything"
    return p_value(law, drawn)


@pytest.fixture(scope="module")
def tiny_pair(tiny_llama: Callable[..., Path]) -> Iterator[tuple[Context, Context, int]]:
    """A model of random weights and a disturbed copy: they agree in part."""
    target = llamacpp.load(tiny_llama(seed=1), threads=1)
    drafter = llamacpp.load(tiny_llama(seed=1, noise=0.1), threads=1)
    yield target.open(64), drafter.open(64), target.info.n_vocab
    target.close()
    drafter.close()


def test_the_stack_is_exact_on_a_small_model(tiny_pair: tuple[Context, Context, int]):
    context, draft_context, n_vocab = tiny_pair
    model = DraftModel("m", draft_context, n_vocab=n_vocab)
    drafter = FirstHit([PromptLookup(min_match=2), model])
    assert _chance(context, PROMPT, drafter, REPLIES) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cascade", "vote"])
def test_drafters_made_of_others_are_exact_on_a_small_model(
    kind: str, tiny_pair: tuple[Context, Context, int]
):
    context, draft_context, n_vocab = tiny_pair
    lookup, costs = PromptLookup(min_match=1), CostModel({1: 1.0, 16: 1.1})
    below = Controller([ManagedDrafter(lookup)], costs, n_vocab, clock=lambda: 0.0)
    drafter: Drafter = Cascade("c", draft_context, below, costs, n_vocab=n_vocab, max_draft=3)
    if kind == "vote":
        drafter = Vote("v", [lookup, DraftModel("m", draft_context, n_vocab=n_vocab)])
    found = _chance(context, PROMPT, drafter, REPLIES, least=4 if kind == "vote" else 3)
    assert found > FALSE_ALARM


@pytest.mark.slow
def test_the_test_sees_a_rule_that_is_wrong_from_the_second_token_on(
    tiny_pair: tuple[Context, Context, int], monkeypatch: pytest.MonkeyPatch
):
    context, draft_context, n_vocab = tiny_pair
    monkeypatch.setattr(target_pass, "verify_block", first_failure)
    drafter = DraftModel("m", draft_context, n_vocab=n_vocab, max_draft=5)
    assert _chance(context, PROMPT, drafter, REPLIES) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.nightly)])
def test_the_stack_is_exact_on_the_bundled_model(demo: Model, tmp_path: Path, count: int):
    prompt = demo.tokenizer.encode("My favourite season of the year is the", special=False)
    store = SelfDrafts(tmp_path)
    own = store.get(demo.info, Recipe("q4_0"), lambda done, total: None)
    with closing(llamacpp.load(own)) as drafter, closing(demo.open(64)) as context:
        model = DraftModel("self", drafter.open(64), n_vocab=demo.info.n_vocab, max_draft=4)
        assert _chance(context, prompt, model, count) > FALSE_ALARM
