"""At temperature > 0, whatever drafts, replies follow the law of a model of llama.cpp.

Pearson's chi-square over the first tokens of replies. False alarms: a right program fails for one
choice of seeds in 10,000; the seeds are fixed, so that it fails always or never. Each check is
shown to find a program that is wrong.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


from backends import llamacpp
from backends.base import Context, Model
from decoding.checks.distribution_check import LENGTH, Outcome, reply
from decoding.draft import Drafter, PointMassLine, PointMassTree
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookahead import Jacobi, Lookahead, LookaheadShape
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.predicted_text import PredictedText
from decoding.drafters.sampled_tree import SampledTree, SeveralPaths
from decoding.drafters.trees import DynamicTree, TreeShape
from decoding.estimation.cost import CostModel, Measured, TreeSize
from decoding.events import Step
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import Distribution, SamplingSettings, uniform
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, TreeRows, TreeVerdict, Verdict
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from tests.fixtures.chance import chance
from tests.fixtures.first_hit import FirstHit
from tests.fixtures.replied import replied, said
from tests.fixtures.rounding import is_plain, law, p_of
from tests.fixtures.tiny.tiny_file import N_VOCAB
from tests.fixtures.wrong_rules import first_failure, forget_residual

FALSE_ALARM = 1e-4
SHORT_REPLIES, REPLIES = 1200, 1500
"""So many that the wrong residual below is 3.8 of its own deviations beyond the threshold for
paths, and 8.3 for the drawn tree."""

GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0)
REPEATING = SamplingSettings(1.0, top_k=6, top_p=0.97, min_p=0.0, repeat_penalty=0.3)
"""A penalty below 1 makes the small model repeat its text, so that guesses come true."""

TWO = SamplingSettings(1.0, top_k=2, top_p=0.97, min_p=0.02, repeat_penalty=1.3)
"""So few that the law of five tokens is known. Of these the last four come out of drafting and
verification: a rule that judges a draft as a whole differs from one that does not from its second
token on."""

PROMPT = [300, 301, 302, 303, 300, 301]
CLEAR = [307, 308, 309, 310, 307, 308]
"""After it, which tokens are possible is hardly a near-tie, even with the rounding of a card."""
SHAPE = TreeShape((-1, -1, 0, 0, 1), (0, 1, 0, 1, 0))

Pair = tuple[Context, Context]
Make = Callable[[Context], Drafter]


def pair_of(tiny_llama: Callable[..., Path], noise: float) -> Iterator[Pair]:
    """Contexts of a model of random weights and of a disturbed copy: they agree in part."""
    with ExitStack() as stack:
        paths = tiny_llama(seed=1), tiny_llama(seed=1, noise=noise)
        models = [stack.enter_context(closing(llamacpp.load(one, threads=1))) for one in paths]
        yield models[0].open(256), models[1].open(256)


@pytest.fixture(scope="module")
def pair(tiny_llama: Callable[..., Path]) -> Iterator[Pair]:
    yield from pair_of(tiny_llama, 0.15)


@pytest.fixture(scope="module")
def close_pair(tiny_llama: Callable[..., Path]) -> Iterator[Pair]:
    yield from pair_of(tiny_llama, 0.1)


# Guesses, trees and paths

GUESSES: dict[str, Make] = {
    "jacobi": lambda _: Jacobi(max_draft=3),
    "lookahead": lambda _: Lookahead(LookaheadShape(3, 3, 3)),
}
DRAWN: dict[str, Make] = {
    "drawn tree": lambda context: SampledTree("a", context, SHAPE, n_vocab=N_VOCAB),
    "paths": lambda context: SeveralPaths("a", context, 2, 2, n_vocab=N_VOCAB),
}
MAKERS: dict[str, Make] = {
    **GUESSES,
    **DRAWN,
    "likeliest tree": lambda one: DynamicTree("a", one, TreeSize(2, 5), n_vocab=N_VOCAB),
}

CUT_SHORT = pytest.mark.processor("near-ties of a card cut the law short of where it shows")


def likelihood(pair: Pair, name: str) -> float:
    context, beside = pair
    drafter = MAKERS[name](beside)
    if name in GUESSES:
        return chance(context, PROMPT, REPEATING, drafter, SHORT_REPLIES, more=2, accepted=0.1)
    return chance(context, PROMPT, SAMPLED, drafter, SHORT_REPLIES, more=3, accepted=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_guesses_trees_and_paths_leave_the_law(name: str, pair: Pair) -> None:
    assert likelihood(pair, name) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_wrong_residual_is_seen(name: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rejection, drawing from p_target as it stands is lossy."""
    forget_residual(monkeypatch)
    assert likelihood(pair, name) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("jacobi", marks=CUT_SHORT), "lookahead"])
def test_a_rule_for_temperature_0_is_seen(
    name: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guess that the model finds likeliest is taken at any temperature."""

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


# Lines of drafter models, alone and in others


def chance_of_five(
    context: Context, prompt: Sequence[int], drafter: Drafter, count: int, least: int = 4
) -> float:
    """How likely a right program is to give replies as far from the law as these.

    Most replies have a draft of at least so many tokens, all of which the law reaches.
    """
    exact = law(context, prompt, TWO)
    drawn: Counter[Outcome] = Counter()
    long = 0
    for seed in range(count):
        outcome, steps = reply(context, prompt, replace(TWO, seed=seed), drafter)
        drawn[outcome] += 1
        long += any(step.drafted >= least for step in steps)
    assert least < LENGTH
    assert long > 0.9 * count, "drafts are too short to tell"
    assert len(exact) > 10, "too few outcomes to tell anything"
    return p_of(exact, drawn)


@pytest.mark.parametrize(
    "kind", ["lookup", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cascade", "vote"))]
)
def test_drafters_made_of_others_leave_the_law(kind: str, close_pair: Pair) -> None:
    context, beside = close_pair
    model = DraftModel("m", beside, n_vocab=N_VOCAB)
    lookup, costs = PromptLookup(min_match=1), CostModel(Measured({1: 1.0, 16: 1.1}))
    drafter: Drafter = FirstHit([PromptLookup(min_match=2), model])
    if kind == "cascade":
        below = Controller([ManagedDrafter(lookup)], costs, N_VOCAB, clock=lambda: 0.0)
        drafter = Cascade("c", beside, below, costs, n_vocab=N_VOCAB, max_draft=3)
    elif kind == "vote":
        drafter = Vote("v", [lookup, model])
    least = 3 if kind == "cascade" else 4
    assert chance_of_five(context, CLEAR, drafter, REPLIES, least) > FALSE_ALARM


@pytest.mark.slow
def test_a_rule_that_is_wrong_from_the_second_token_on_is_seen(
    close_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, beside = close_pair
    monkeypatch.setattr(target_pass, "verify_block", first_failure)
    drafter = DraftModel("m", beside, n_vocab=N_VOCAB, max_draft=5)
    assert chance_of_five(context, CLEAR, drafter, REPLIES) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.processor("a card moves its logits so far that few replies surely can follow")
@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_self_drafter_leaves_the_law_of_the_bundled_model(
    demo: Model, tmp_path: Path, count: int
) -> None:
    prompt = demo.tokenizer.encode("My favourite season of the year is the", special=False)
    own = SelfDrafts(tmp_path).get(demo.info, Recipe("q4_0"), lambda done, total: None)
    with closing(llamacpp.load(own)) as drafter, closing(demo.open(64)) as context:
        model = DraftModel("self", drafter.open(64), n_vocab=demo.info.n_vocab, max_draft=4)
        assert chance_of_five(context, prompt, model, count) > FALSE_ALARM


# A predicted text, right or wrong

TOKENS = 48
PREDICTIONS = 30


def written(
    context: Context, predicted: Sequence[int] | None, prompt: Sequence[int] = PROMPT
) -> list[Step]:
    """A greedy reply; the controller believes that drafting costs next to nothing."""
    costs = CostModel(Measured({1: 1.0, 16: 1.1}))
    controller = Controller([ManagedDrafter(PromptLookup())], costs, N_VOCAB, lambda: 0.0)
    if predicted is not None:
        controller.add([ManagedDrafter(PredictedText(predicted, len(prompt)))])
    drafter = None if predicted is None else controller
    return replied(context, prompt, GREEDY, Limits(TOKENS, frozenset()), drafter)


def edited(text: Sequence[int], chance: random.Random) -> list[int]:
    """A text with some parts of it left out, replaced, repeated or moved."""
    found = list(text)
    for _ in range(chance.randrange(6)):
        start = chance.randrange(len(found))
        part = found[start : start + chance.randrange(1, 9)]
        other = [chance.randrange(N_VOCAB) for _ in range(chance.randrange(5))]
        found[start : start + len(part)] = chance.choice([[], other, part + part, part[::-1]])
        found = found or [1]
    return found


def test_greedy_ids_are_plain_decodings_with_any_prediction(pair: Pair) -> None:
    plain = said(written(pair[0], None))
    kinds: Counter[str] = Counter()
    for seed in range(PREDICTIONS):
        chance = random.Random(seed)
        other = [chance.randrange(N_VOCAB) for _ in range(TOKENS)]
        steps = written(pair[0], other if seed % 5 == 0 else edited(plain, chance))
        assert is_plain(pair[0], PROMPT, said(steps), plain)
        drafted = [step for step in steps if step.drafter == "prediction"]
        kinds["right"] += any(step.accepted for step in drafted)
        kinds["wrong"] += any(step.accepted < step.drafted for step in drafted)
    assert kinds["right"] >= PREDICTIONS // 2
    assert kinds["wrong"] >= PREDICTIONS // 4
    assert len(written(pair[0], plain)) < TOKENS / 4, "a right prediction takes few passes"


@pytest.mark.slow
def test_a_prediction_leaves_the_law(pair: Pair) -> None:
    context = pair[0]
    exact = law(context, CLEAR, TWO)
    drafter = PredictedText(said(written(context, None, CLEAR))[:12], len(CLEAR))
    drawn: Counter[Outcome] = Counter()
    accepted = rejected = 0
    for seed in range(REPLIES):
        outcome, steps = reply(context, CLEAR, replace(TWO, seed=seed), drafter)
        drawn[outcome] += 1
        accepted += any(step.accepted for step in steps)
        rejected += any(step.accepted < step.drafted for step in steps)
    assert min(accepted, rejected) > 150, "drafts must be accepted and rejected to tell anything"
    assert len(exact) > 10
    assert p_of(exact, drawn) > FALSE_ALARM
