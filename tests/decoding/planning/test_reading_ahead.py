"""Drafters that may draft read along what the next reply begins with; others cost nothing."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest

from backends.base import ModelError, PassStoppedError
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.decoding.conftest import FakeContext, random_table

COSTS = CostModel(Measured({1: 1.0, 16: 1.5}))
CHEAP, DEAR = DraftCost(0.01, 0.005), DraftCost(9.0, 9.0)
TEXT = [1, 2, 3, 4, 5] * 6


def controller_of(context: FakeContext, cost: DraftCost = CHEAP) -> Controller:
    drafter = DraftModel("model", context, n_vocab=6)
    return Controller([ManagedDrafter(drafter, cost=cost)], COSTS, 6)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext(random_table(0))


def test_one_that_may_pay_reads_in_short_pieces_and_the_reply_need_not(
    context: FakeContext,
) -> None:
    controller = controller_of(context)
    for _ in controller.read_ahead(TEXT, 0.02):  # the time of four tokens
        pass
    assert context.tokens == TEXT
    assert context.forwards == [4] * 7 + [2]
    controller.begin([*TEXT, 0], Sampler(SamplingSettings()))
    for _ in controller.read([*TEXT, 0]):
        pass
    assert context.forwards[8:] == [1]


def test_one_that_is_paused_reads_nothing(context: FakeContext) -> None:
    assert list(controller_of(context, DEAR).read_ahead(TEXT, 0.02)) == []
    assert context.forwards == []


def test_what_was_read_before_is_not_read_again_and_other_text_is_taken_back(
    context: FakeContext,
) -> None:
    controller = controller_of(context)
    for text in (TEXT[:10], TEXT[:14], [*TEXT[:8], 0, 0, 0]):
        for _ in controller.read_ahead(text, 1.0):
            pass
        assert context.tokens[: len(text) - 1] == text[:-1]
    assert sum(context.forwards) <= 10 + 5 + 3


def test_one_whose_context_is_full_reads_nothing() -> None:
    context = FakeContext(random_table(0), n_ctx=16)
    assert list(controller_of(context).read_ahead(TEXT, 1.0)) == []
    assert context.forwards == []


class Breaks(FakeContext):
    fault: Exception = ModelError("no")

    def forward(self, tokens: Sequence[int], n_logits: int) -> NoReturn:
        raise self.fault


def test_one_that_fails_is_dropped_without_an_error() -> None:
    controller = controller_of(Breaks(random_table(0)))
    assert list(controller.read_ahead(TEXT, 1.0)) == []
    assert [managed.dropped for managed in controller.drafters] == ["it failed: no"]


def test_one_that_is_stopped_is_not_at_fault() -> None:
    context = Breaks(random_table(0))
    context.fault = PassStoppedError()
    controller = controller_of(context)

    def reading() -> Iterator[int]:
        yield from controller.read_ahead(TEXT, 1.0)

    with pytest.raises(PassStoppedError):
        next(reading())
    assert [managed.dropped for managed in controller.drafters] == [""]
