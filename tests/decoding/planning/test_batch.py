"""Replies side by side: each as if it were alone, all together as fast as the machine allows."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.events import FinishReason
from decoding.planning.batch import shared_rows
from tests.fixtures.simulator import CURVES, H100, PLAIN_SECONDS, costs_of
from tests.fixtures.together import MACHINES, PROMPT, TEXTS, Together, check_rate, whole


def test_each_says_what_it_would_alone_and_keeps_as_many_drafted_tokens_as_are_right() -> None:
    together = Together((0.9, 0.5, 0.1, 0.9), CURVES["flat"]).all()
    for place in range(4):
        assert together.said(place) == together.written(place)
        assert len(together.said(place)) == 40
    kept = [sum(step.accepted for step in steps) for steps in together.steps]
    assert kept[0] > kept[1] > kept[2]
    assert max(together.first.passes) > 4


@pytest.mark.parametrize("fixed", [0, 1, None])
def test_what_fills_a_pass_up_is_part_of_no_reply(fixed: int | None) -> None:
    body = H100["8B"]
    together = Together((0.9, 0.5, 0.9), body.passes, fixed=fixed, changes=body.changes).all()
    for place in range(3):
        assert together.said(place) == together.written(place)
        assert together.ends[place] is FinishReason.LENGTH
    assert {4, 8} & set(together.first.passes)


@pytest.mark.parametrize("seed", range(6))
def test_a_sampled_reply_is_token_by_token_the_one_that_it_is_alone(seed: int) -> None:
    """At the same rows; so the law is that of one alone, whatever the others draft."""
    sampling = whole(seed)
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


@pytest.mark.parametrize("is_program", [True, False])
def test_prompts_are_read_in_blocks_beside_the_passes_of_programs_that_write(
    is_program: bool,
) -> None:
    together = Together((0.1, 0.1, 0.1), CURVES["linear"], tokens=60)
    for sequence in together.sequences:
        sequence.n_chunk = 64
    together.first.exact_batch = 64
    together.begin(0)
    together.begin(1, is_program=is_program)
    for _ in range(4):
        together.batch.step()
    together.begin(2, prompt=640)
    read, said = list[int](), len(together.said(0))
    while not together.steps[2]:
        before = together.sequences[2].length
        together.batch.step()
        read.append(together.sequences[2].length - before)
    whole_blocks = [64] * 10
    assert (read[:10] == whole_blocks) == is_program  # a person's pass would wait for a block
    assert len(together.said(0)) - said >= 10  # in the pass of those who write
    while len(together.batch):
        together.batch.step()
    assert [together.said(place) for place in range(2)] == [
        together.written(place) for place in range(2)
    ]
    assert together.said(2) == together.written(2, prompt=640)


def test_one_that_is_alone_goes_on_until_somebody_waits() -> None:
    together = Together((0.5, 0.5), CURVES["flat"])
    together.is_awaited = False
    together.begin(0, prompt=640)
    together.batch.step()
    assert together.ends == {0: FinishReason.LENGTH}
    together.begin(1)
    together.is_awaited = True
    together.batch.step()
    assert 1 not in together.ends
    together.begin(0)
    together.is_awaited = False  # two that run together are never alone
    together.batch.step()
    assert 1 not in together.ends
    while len(together.batch):
        together.batch.step()
    assert together.said(1) == together.written(1)


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


def begun(together: Together, prompts: Sequence[int], *, until: int) -> list[int]:
    """In which order replies said their first token, when so many have."""
    order: list[int] = []
    for place, prompt in enumerate(prompts):
        together.begin(place, prompt)
    while len(order) < until:
        together.batch.step()
        order += [
            place
            for place, steps in enumerate(together.steps)
            if steps and place not in order and not together.ends.get(place)
        ]
    return order


def test_prompts_are_read_one_after_the_other_and_answered_once_equal_shares_would() -> None:
    together = Together((0.1,) * 3, [0.0, *range(1, 513)], tokens=60)
    order = begun(together, (700, 600, 560), until=2)
    assert order == [2, 1]
    assert together.clock.now / PLAIN_SECONDS < 1600  # with equal shares, 1760 for the second
    assert len(together.said(2)) == 1  # it waits, as the others would still be reading beside it
    while not together.steps[0]:
        together.batch.step()
    assert together.clock.now / PLAIN_SECONDS < 2100
    while len(together.batch):
        together.batch.step()
    assert [together.said(place) for place in range(3)] == [
        together.written(place, prompt) for place, prompt in enumerate((700, 600, 560))
    ]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    together = Together((0.1,) * 3, CURVES["linear"], tokens=60)
    assert begun(together, (800, 80, 60), until=2) == [1, 2]
    for _ in range(3):
        together.batch.step()
    assert not together.steps[0]
    assert len(together.said(1)) > 1


def test_a_waiting_reader_that_is_stopped_ends_at_once() -> None:
    together = Together((0.1,) * 2, CURVES["linear"], tokens=120)
    together.begin(0, 1024)
    together.begin(1, 1050)
    together.batch.step()
    together.stopped.add(1)
    together.batch.step()
    assert together.ends == {1: FinishReason.CANCELLED}
    assert together.sequences[1].length == 0


def test_a_person_is_read_first_and_is_delayed_by_a_quarter_of_a_second_at_most() -> None:
    together = Together((0.1,) * 3, CURVES["linear"], tokens=60)
    together.begin(0, 700)
    together.begin(1, 760, is_program=False)
    while not (together.steps[0] or together.steps[1]):
        together.batch.step()
    assert together.steps[1]
    together.begin(2, 300)
    longest = 0.0
    while len(together.said(1)) < 60:
        before = together.clock.now
        together.batch.step()
        longest = max(longest, together.clock.now - before)
    assert together.sequences[0].length > 600
    assert longest <= 0.25


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

    counts, cost = shared_rows(offers, [None] * writing, writing, costs, rate, 16 - writing)
    assert cost * plain * rate == pytest.approx(extra(sum(counts)), abs=1e-9)
    others = product(*(range(len(offer) + 1) for offer in offers))
    best = max(_gain(one, offers, extra) for one in others if sum(one) <= 16 - writing)
    assert _gain(counts, offers, extra) == pytest.approx(best, abs=1e-9)


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
