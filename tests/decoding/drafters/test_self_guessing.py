"""jacobi: the model's words after a pass are the next guesses, and they move with the text."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import ModelError, UsageError
from decoding.draft import Drafter
from decoding.drafters.lookahead import Jacobi, Lookahead, LookaheadShape, NgramPool, TokenTree
from decoding.estimation.cost import CostModel, DraftCost, Measured, TreeSize
from decoding.events import Origin, Step
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import State
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from decoding.telemetry import Statistics
from tests.fixtures.chance import chance
from tests.fixtures.forms import parents_in
from tests.fixtures.replied import replied, said
from tests.fixtures.retimed import retimed

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

HISTORY = [5, 6, 7]


def begun(max_draft: int = 4) -> Jacobi:
    drafter = Jacobi(max_draft=max_draft)
    drafter.begin(HISTORY, Sampler(SamplingSettings(temperature=0.0)))
    return drafter


def hear(drafter: Jacobi, history: list[int], said: list[int]) -> tuple[int, ...]:
    """Send its draft, and let the model say this after each token of the pass."""
    draft = drafter.propose(history, 4)
    assert draft.listener is not None
    draft.listener(np.array(said))
    return draft.tokens


def test_what_the_model_said_at_a_place_is_the_guess_for_it():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    drafter.commit([*HISTORY, 10])
    assert drafter.propose([*HISTORY, 10], 4).tokens == (11, 12, 13, 14)


def test_guesses_of_what_was_said_meanwhile_are_dropped():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    assert drafter.propose([*HISTORY, 10, 11, 40], 4).tokens[:2] == (13, 14)
    assert len(drafter.propose([*HISTORY, *range(20, 40)], 4)) == 4


def test_a_guess_that_stays_is_surer_than_one_that_changes():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    text = [*HISTORY, 10]
    hear(drafter, text, [11, 12, 30, 14, 15])
    draft = drafter.propose([*text, 11], 4)
    assert draft.tokens == (12, 30, 14, 15)
    assert draft.evidence == (2, 1, 2, 1)
    assert draft.confidence[0] > draft.confidence[1]


def test_it_stops_where_one_more_would_not_pay_and_at_the_limit():
    drafter = begun()
    assert len(drafter.propose(HISTORY, 4, lambda confidence, evidence: False)) == 1
    assert len(drafter.propose(HISTORY, 2)) == 2
    assert not drafter.propose(HISTORY, 0).tokens


def test_a_reply_begins_without_the_guesses_of_the_last():
    drafter = begun()
    hear(drafter, HISTORY, [10, 11, 12, 13, 14])
    drafter.begin(HISTORY, Sampler(SamplingSettings()))
    assert drafter.propose(HISTORY, 1).evidence == (0,)


def looking_ahead(shape: LookaheadShape) -> Lookahead:
    drafter = Lookahead(shape)
    drafter.begin(HISTORY, Sampler(SamplingSettings(temperature=0.0)))
    return drafter


def test_without_an_n_gram_the_window_goes_along_alone():
    draft = looking_ahead(LookaheadShape(window=3, ngram=4, pool=2)).propose(HISTORY, 9)
    assert draft.drafted == 0
    assert draft.form.window_tokens == 8
    # Columns begin at the last token and at the nodes of the line 2, 5; each goes on by two.
    assert parents_in(draft) == (-1, 0, -1, 2, 3, 2, 5, 6)


def test_a_column_and_the_word_after_it_are_an_n_gram_of_the_pool():
    drafter = looking_ahead(LookaheadShape(window=1, ngram=3, pool=2))
    draft = drafter.propose(HISTORY, 9)
    (guess,) = draft.tokens
    assert draft.listener is not None
    draft.listener(np.array([20, 21]))
    found = drafter.propose([*HISTORY, 20, 7], 9)
    assert found.tokens[: found.drafted] == (guess, 21)
    assert parents_in(found)[: found.drafted] == (-1, 0)
    assert drafter.propose([*HISTORY, 20, 7], 1).drafted == 1, "no deeper than the limit"


def test_columns_keep_their_places_when_several_tokens_are_said():
    """Column 2 begins two places after the last token: it is column 0 two tokens later."""
    drafter = looking_ahead(LookaheadShape(window=3, ngram=2, pool=2))
    draft = drafter.propose(HISTORY, 9)
    assert parents_in(draft) == (-1, 0)
    assert draft.listener is not None
    draft.listener(np.array([20, 21, 22]))
    # Of the places 3, 4 and 5 the model said 20, 21 and 22; 3 and 4 are said now.
    after = drafter.propose([*HISTORY, 20, 40], 9)
    assert after.tokens[after.drafted] == 22


def test_the_pool_outlives_a_reply_and_the_window_does_not():
    drafter = looking_ahead(LookaheadShape(window=1, ngram=2, pool=1))
    draft = drafter.propose(HISTORY, 9)
    assert not draft.tokens, "one column of one token is the last token itself"
    drafter = looking_ahead(LookaheadShape(window=2, ngram=2, pool=1))
    draft = drafter.propose(HISTORY, 9)
    assert draft.listener is not None
    draft.listener(np.array([20, 21]))
    drafter.begin(HISTORY, Sampler(SamplingSettings()))
    found = drafter.propose(HISTORY, 9)
    assert found.tokens[: found.drafted] == (20,)


def test_a_pass_takes_no_more_tokens_than_its_shape_says():
    generator = np.random.default_rng(0)
    shape = LookaheadShape(window=4, ngram=3, pool=3)
    drafter, text, most = looking_ahead(shape), list(HISTORY), 0
    for _ in range(300):
        draft = drafter.propose(text, 9)
        most = max(most, len(draft))
        assert draft.listener is not None
        draft.listener(generator.integers(0, 5, 1 + len(draft)))
        text += generator.integers(0, 5, int(generator.integers(1, 4))).tolist()
    assert most <= shape.nodes
    assert most > shape.nodes - 3


def test_branches_share_the_tokens_they_begin_with():
    tree = TokenTree()
    for branch in ((1, 2, 3), (1, 2, 4), (2, 2)):
        tree.add(branch)
    assert tree.tokens == [1, 2, 3, 4, 2, 2]
    assert tree.parents == [-1, 0, 1, 1, -1, 4]


def test_a_pool_keeps_the_latest_of_each_token():
    pool = NgramPool(2)
    for continuation in ((1,), (2,), (1,), (3,)):
        pool.add(9, continuation)
    assert pool.after(9) == [(3,), (1,)]
    assert pool.after(8) == []


def test_settings_are_read_and_nonsense_is_refused():
    assert LookaheadShape.parse("") == LookaheadShape()
    assert LookaheadShape.parse("g=2, w=7,n=4") == LookaheadShape(7, 4, 2)
    for text in ("w", "w=0", "n=1", "g=0", "w=3,w=4", "x=3", "w=-1", "w=1e9"):
        with pytest.raises(UsageError):
            LookaheadShape.parse(text)


# Replies drafted by jacobi and lookahead on a backend of numbers: exact at every temperature.
#
# The chi-square tests have fixed seeds; each rejects a right program with probability FALSE_ALARM.

N_VOCAB = 6
FALSE_ALARM = 1e-4
REPLIES = 1500
GREEDY = SamplingSettings(temperature=0.0)
NO_END: frozenset[int] = frozenset()
SHAPE = LookaheadShape(window=3, ngram=3, pool=3)
MAKERS: dict[str, Callable[[], Drafter]] = {
    "jacobi": lambda: Jacobi(max_draft=4),
    "lookahead": lambda: Lookahead(SHAPE),
}
Open = Callable[..., "FakeContext"]


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    prompt=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12),
    n_ctx=st.integers(14, 80),
    ends=st.booleans(),
)
def test_greedy_replies_are_those_of_plain_decoding(
    name: str,
    seed: int,
    prompt: list[int],
    n_ctx: int,
    ends: bool,
    table: Callable[..., np.ndarray],
    fake_context: Open,
):
    """To the end of the context too; and the context then holds what was said."""
    scores = table(seed)
    limits = Limits(60, frozenset({seed % N_VOCAB}) if ends else NO_END)
    plain = replied(fake_context(scores, n_ctx=n_ctx), prompt, GREEDY, limits, None)
    context = fake_context(scores, n_ctx=n_ctx)
    drafted = replied(context, prompt, GREEDY, limits, MAKERS[name]())
    assert said(drafted) == said(plain)
    text = [*prompt, *said(drafted)]
    assert list(context.tokens) == text[: context.length]
    assert context.length >= len(text) - 1


@pytest.mark.parametrize("name", MAKERS)
def test_drafts_are_accepted_and_counted(
    name: str, table: Callable[..., np.ndarray], fake_context: Open
):
    statistics = Statistics(0.0)
    found: list[Step] = []
    for seed in range(20):
        context = fake_context(table(seed), n_ctx=200, n_chunk=32)
        found += replied(context, [1, 2], GREEDY, Limits(100, NO_END), MAKERS[name]())[1:]
        assert context.forwards[1:] == [step.passed for step in found[-len(context.forwards) + 1 :]]
    for step in found:
        statistics.add(step)
        assert step.accepted == len(step.tokens) - 1 <= step.longest <= step.drafted
        origins = step.provenance
        assert origins[: step.accepted] == (name,) * step.accepted
        last = origins[-1]
        if step.drafted == 0:
            assert last == Origin.MODEL
        else:
            assert last == (Origin.BONUS if step.accepted == step.longest else Origin.CORRECTED)
    assert statistics.accepted > 100
    assert statistics.drafted == sum(step.drafted for step in found)
    window_tokens = sum(step.window_tokens for step in found)
    assert (window_tokens > 0) == (name == "lookahead")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("jacobi", SamplingSettings(0.8, 0, 1.0, 0.0)),
        ("lookahead", SamplingSettings(0.9, 4, 0.9, 0.04, repeat_penalty=1.4)),
    ],
)
def test_sampled_replies_follow_the_law_of_the_target(
    name: str, sampling: SamplingSettings, table: Callable[..., np.ndarray], fake_context: Open
):
    """The pool of lookahead is filled by the replies before."""
    context, drafter = fake_context(table(11)), MAKERS[name]()
    found = chance(context, [1, 3, 2], sampling, drafter, REPLIES, more=1, accepted=0.07)
    assert found > FALSE_ALARM


def test_a_reply_goes_on_when_a_drafter_breaks_on_what_it_hears(
    table: Callable[..., np.ndarray], fake_context: Open, monkeypatch: pytest.MonkeyPatch
):
    def fails(self: Jacobi, *heard: object) -> None:
        raise ModelError("it fell over")

    monkeypatch.setattr(Jacobi, "_on_verified", fails)
    context = fake_context(table(3))
    managed = ManagedDrafter(Jacobi(), cost=DraftCost(1e-6, 0.0))
    controller = Controller([managed], CostModel(Measured({1: 0.1, 16: 0.1})), N_VOCAB)
    found = replied(context, [1, 2], GREEDY, Limits(20, NO_END), controller)
    assert said(found) == said(
        replied(fake_context(table(3)), [1, 2], GREEDY, Limits(20, NO_END), None)
    )
    assert "it fell over" in managed.dropped


@pytest.mark.parametrize(("of_sixteen", "state"), [(1.05, State.ON), (6.0, State.PAUSED)])
def test_lookahead_runs_where_its_passes_cost_little_and_is_paused_elsewhere(
    of_sixteen: float, state: State, table: Callable[..., np.ndarray], fake_context: Open
):
    """Every pass of its size counts, also one over window tokens alone."""
    context = fake_context(table(3), n_ctx=4000, n_chunk=32)
    tree = TreeSize(SHAPE.depth, SHAPE.nodes)
    managed = ManagedDrafter(Lookahead(SHAPE), cost=DraftCost(1e-9, 0.0), tree=tree)
    costs = CostModel(Measured({1: 1.0, 16: of_sixteen}))
    controller = Controller([managed], costs, N_VOCAB, clock=lambda: 0.0)

    def seconds(step: Step) -> float:
        return 1.0 + (of_sixteen - 1.0) * (step.passed - 1) / 15.0

    timed = retimed(controller, seconds)
    steps = replied(context, [1, 2], GREEDY, Limits(1500, NO_END), timed)
    plain_cost, spent = len(said(steps)), sum(map(seconds, steps))
    (status,) = controller.statuses
    assert status.state is state
    assert (status.reason != "") == (state is State.PAUSED)
    assert (plain_cost / spent > 1.2) if state is State.ON else (plain_cost / spent > 0.98)
