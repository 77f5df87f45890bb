"""Costs of heads are measured beside an empty context of their model, once."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from app.learned import calibrations
from app.learned.calibrations import CONTEXT, Calibrations
from app.paths import Paths
from backends.base import Context
from decoding.estimation.calibration import calibrate
from decoding.estimation.cost import DraftCost
from decoding.estimation.draft_cost import BlockCost
from tests.fixtures.tiny.head_pair import Opened, Pair
from tests.fixtures.tiny.heads import BLOCK

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112]


@pytest.fixture(autouse=True)
def _ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every pass takes as long: a card's times of such small ones scatter."""
    ticks = count()
    timed = partial(calibrate, clock=lambda: 0.001 * next(ticks))
    monkeypatch.setattr(calibrations, "calibrate", timed)


def measured(pair: Pair, told: list[str]) -> DraftCost:
    """The cost of a head whose model is in the middle of a text."""

    @contextmanager
    def beside() -> Generator[Context]:
        own = pair.model.open(CONTEXT)
        with closing(own), closing(pair.head.open_beside(own)) as empty:
            yield empty

    kept = Calibrations(Paths.of_this_user(), told.append)
    return kept.head(pair.head, pair.drafts, beside, "head")


@pytest.mark.slow
def test_a_block_is_measured_by_its_length_and_by_what_is_read(talkative: Opened) -> None:
    told: list[str] = []
    with talkative("dflash") as pair:
        pair.context.forward(PROMPT, 1)
        first, again = measured(pair, told), measured(pair, told)
        assert len(told) == 1
        assert pair.context.length == len(PROMPT)
        assert pair.drafts.length == 0
    assert isinstance(first, BlockCost)
    assert isinstance(again, BlockCost)
    assert first.longest == BLOCK - 1
    assert first.begin_seconds > 0.0
    assert again.seconds(4, 9) == first.seconds(4, 9)


@pytest.mark.slow
def test_an_assistant_reads_for_nothing(talkative: Opened) -> None:
    with talkative("gemma4-assistant") as pair:
        pair.context.forward(PROMPT, 1)
        cost = measured(pair, [])
    assert not isinstance(cost, BlockCost)
    assert cost.draw_seconds > 0.0
    assert cost.read_seconds == 0.0
