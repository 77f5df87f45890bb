"""Replies side by side: each as if it were alone, all together as fast as the machine allows."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.draft import Draft, KeepOn
from decoding.events import Finish, FinishReason, Step
from decoding.generation import Limits, generate
from decoding.planning.batch import Batch, shared_rows
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.clock import Clock
from tests.fixtures.published import PUBLISHED, Known
from tests.fixtures.simulated_cells import SimulatedSequence
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import CURVES, H100, PLAIN_SECONDS, Curve, FreeDrafter, costs_of

GREEDY = SamplingSettings(temperature=0.0)
PROMPT = 5


class Fixed(FreeDrafter):
    """Drafts so many tokens at every step."""

    def __init__(self, text: Text, length: int) -> None:
        super().__init__(text)
        self._length = length

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return super().propose(history, min(limit, self._length))


class Together:
    """Replies of one machine, each in a text of its own.

    shares: of right guesses, for each reply. fixed: the length of all drafts; a controller chooses
    if None. logits: of the token that the text has next; the others have 0.
    """

    def __init__(
        self,
        shares: Sequence[float],
        known: Curve,
        tokens: int = 40,
        *,
        fixed: int | None = None,
        sampling: SamplingSettings = GREEDY,
        logits: float = 9.0,
    ) -> None:
        self.clock = Clock(0.0)
        self.costs = costs_of(known)
        self.texts = [
            Text(constant(share, seed, 3 * tokens + 700), seed) for seed, share in enumerate(shares)
        ]
        first = SimulatedSequence(self.texts[0], known, self.clock, logits)
        self.sequences = [first, *(first.beside(text) for text in self.texts[1:])]
        self.batch = Batch(first, lambda: self.costs, self.clock)
        self.steps: list[list[Step]] = [[] for _ in shares]
        self.ends: dict[int, FinishReason] = {}
        self.stopped: set[int] = set()
        self._controller = Controller([], self.costs, N_VOCAB, self.clock)
        self._tokens, self._fixed, self._sampling = tokens, fixed, sampling

    @property
    def first(self) -> SimulatedSequence:
        return self.sequences[0]

    def begin(self, place: int, prompt: int = PROMPT) -> None:
        text, sequence = self.texts[place], self.sequences[place]
        if self._fixed is None:
            members = [ManagedDrafter(FreeDrafter(text))]
            drafter = self._controller.of(members, is_beside=True)
        else:
            drafter = Fixed(text, self._fixed) if self._fixed else None

        def work() -> None:
            events = generate(
                sequence,
                text.tokens[:prompt],
                self._sampling,
                Limits(self._tokens, frozenset()),
                drafters=lambda: drafter,
                is_cancelled=lambda: place in self.stopped,
                clock=self.clock,
            )
            for event in events:
                if isinstance(event, Step):
                    self.steps[place].append(event)
                elif isinstance(event, Finish):
                    self.ends[place] = event.reason

        self.batch.begin(sequence, work)

    def all(self) -> "Together":
        for place in range(len(self.texts)):
            self.begin(place)
        while len(self.batch):
            self.batch.step()
        return self

    def rate(self) -> float:
        """Tokens in the time of a plain step of one alone, as long as all write."""
        for place in range(len(self.texts)):
            self.begin(place)
        while len(self.batch) == len(self.texts):
            self.batch.step()
        tokens = sum(len(self.said(place)) for place in range(len(self.texts)))
        return tokens * PLAIN_SECONDS / self.clock.now

    def said(self, place: int) -> list[int]:
        return [token for step in self.steps[place] for token in step.tokens]

    def written(self, place: int, prompt: int = PROMPT) -> list[int]:
        """What the text of a reply has there."""
        return self.texts[place].tokens[prompt : prompt + len(self.said(place))]


def test_each_says_what_it_would_alone_and_keeps_as_many_drafted_tokens_as_are_right() -> None:
    together = Together((0.9, 0.5, 0.1, 0.9), CURVES["flat"]).all()
    for place in range(4):
        assert together.said(place) == together.written(place)
        assert len(together.said(place)) == 40
    kept = [sum(step.accepted for step in steps) for steps in together.steps]
    assert kept[0] > kept[1] > kept[2]
    assert max(together.first.passes) > 4


@pytest.mark.parametrize("seed", range(6))
def test_a_sampled_reply_is_token_by_token_the_one_that_it_is_alone(seed: int) -> None:
    """At the same rows; so the law is that of one alone, whatever the others draft."""
    sampling = SamplingSettings(temperature=1.0, seed=seed)
    of = (0.9, 0.5, 0.9)
    beside = Together(of, CURVES["flat"], sampling=sampling, logits=3.0).all()
    plain = Together(of, CURVES["flat"], fixed=0, sampling=sampling, logits=3.0)
    for place in range(3):
        plain.begin(place)
        while len(plain.batch):
            plain.batch.step()
        assert beside.said(place) == plain.said(place)
    assert any(step.drafted for steps in beside.steps for step in steps)


def test_one_that_ends_or_is_stopped_leaves_the_others_as_they_are() -> None:
    together = Together((0.5, 0.5, 0.5), CURVES["flat"])
    for place in range(3):
        together.begin(place)
    for _ in range(5):
        together.batch.step()
    together.stopped.add(1)
    while len(together.batch):
        together.batch.step()
    assert together.ends == {
        0: FinishReason.LENGTH,
        1: FinishReason.CANCELLED,
        2: FinishReason.LENGTH,
    }
    for place in range(3):
        assert together.said(place) == together.written(place)
    assert len(together.said(1)) < 40


def test_where_a_pass_of_all_fails_each_runs_its_own() -> None:
    together = Together((0.9, 0.5), CURVES["flat"])
    together.first.fails_at = 4
    together.all()
    assert [together.said(place) for place in range(2)] == [
        together.written(place) for place in range(2)
    ]
    assert 0 in together.first.passes


def test_a_long_prompt_is_read_in_pieces_between_the_steps_of_those_who_write() -> None:
    together = Together((0.1, 0.1, 0.1), CURVES["linear"], tokens=60)
    together.begin(0)
    together.begin(1)
    for _ in range(4):
        together.batch.step()
    before = len(together.said(0))
    together.begin(2, prompt=640)
    while not together.steps[2]:
        together.batch.step()
    assert len(together.said(0)) - before >= 640 // 64  # a step at least between two pieces
    while len(together.batch):
        together.batch.step()
    assert together.said(2) == together.written(2, 640)


def test_prompts_of_several_are_read_in_the_passes_of_those_who_write() -> None:
    """Which are neither measured nor longer than a pass of drafts."""
    together = Together((0.1,) * 4, CURVES["linear"], tokens=60)
    for place in range(2):
        together.begin(place)
    for _ in range(4):
        together.batch.step()
    costs = [together.costs.seconds(rows) for rows in range(1, 9)]
    before, said = len(together.first.passes), len(together.said(0))
    together.begin(2, prompt=100)
    together.begin(3, prompt=30)
    while not (together.steps[2] and together.steps[3]):
        together.batch.step()
    rows = together.first.passes[before:]
    assert sum(rows) >= 130
    assert len(rows) == 3
    assert max(rows) <= together.first.max_logits
    assert len(together.said(0)) >= said + len(rows)
    assert [together.costs.seconds(rows) for rows in range(1, 9)] == pytest.approx(costs, rel=0.01)
    while len(together.batch):
        together.batch.step()
    assert together.said(2) == together.written(2, 100)
    assert together.said(3) == together.written(3, 30)


def test_all_that_write_at_once_fit_a_pass() -> None:
    together = Together((0.95,) * 16, [0.0, *[1.0] * 64]).all()
    read, *written = together.first.passes
    assert read == 16 * PROMPT
    assert max(written) <= together.first.max_logits
    assert all(together.said(place) == together.written(place) for place in range(16))


def _gain(counts: Sequence[int], offers: Sequence[Sequence[float]], extra: Callable[[int], float]):  # type: ignore[no-untyped-def]
    expected = 0.0
    for count, offer in zip(counts, offers, strict=True):
        joint = 1.0
        for share in offer[:count]:
            joint *= share
            expected += joint
    return expected - extra(sum(counts))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.floats(0.05, 0.99), min_size=1, max_size=4), min_size=1, max_size=3),
    st.sampled_from(sorted(CURVES)),
    st.floats(1.0, 2.0),
)
def test_no_other_rows_would_bring_more(
    offers: list[list[float]], name: str, faster: float
) -> None:
    costs, writing = costs_of(CURVES[name]), len(offers)
    plain = costs.seconds(writing)
    rate = faster * writing / plain

    def extra(drafted: int) -> float:
        return rate * max(costs.seconds(writing + drafted) - plain, 0.0)

    counts = shared_rows(offers, writing, costs, rate, most=16 - writing)
    others = product(*(range(len(offer) + 1) for offer in offers))
    best = max(_gain(one, offers, extra) for one in others if sum(one) <= 16 - writing)
    assert _gain(counts, offers, extra) == pytest.approx(best, abs=1e-9)


def _extended(known: Curve) -> Curve:
    """A curve up to 64 tokens, in a straight line from its last part on."""
    last, middle = len(known) - 1, max((len(known) - 1) // 2, 1)
    slope = (known[last] - known[middle]) / max(last - middle, 1)
    return [*known, *(known[last] + slope * count for count in range(1, 65 - last))]


MACHINES: dict[str, Curve] = {
    name: _extended(known)
    for name, known in (
        *CURVES.items(),
        *((f"H100 {name}", known.passes) for name, known in H100.items()),
        *((one.name, one.passes) for one in PUBLISHED if one.known is Known.CURVE),
    )
}
TEXTS = ((0.9,), (0.6,), (0.3,), (0.9, 0.3))


def check_rate(name: str, count: int, shares: tuple[float, ...], tokens: int) -> None:
    """At least 0.95 of what the best fixed length brings, which is known afterwards."""
    known, of = MACHINES[name], (shares * count)[:count]
    lengths = (length for length in (0, 1, 2, 3, 4, 6, 8) if count * (1 + length) < 64)
    fixed = {length: Together(of, known, tokens, fixed=length).rate() for length in lengths}
    own = Together(of, known, tokens).rate()
    assert own >= 0.95 * max(fixed.values()), (own, fixed)
    assert own >= 0.98 * fixed[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "shares"),
    [("stepped", 4, (0.6,)), ("H100 135M", 8, (0.9,)), ("H100 8B", 4, (0.9, 0.3))],
)
def test_together_they_are_as_fast_as_at_the_best_fixed_length(
    name: str, count: int, shares: tuple[float, ...]
) -> None:
    check_rate(name, count, shares, 200)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "count", "shares"), [*product(MACHINES, (2, 4, 8, 16), TEXTS)])
def test_so_they_are_on_every_machine(name: str, count: int, shares: tuple[float, ...]) -> None:
    check_rate(name, count, shares, 1500)
