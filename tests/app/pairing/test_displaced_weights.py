"""What the place of a drafter in memory costs a model that streams."""

from pathlib import Path

import pytest

from app.drafting.choose import pair_knowledge as displaced_weights
from app.drafting.choose.pair_knowledge import costs_beside, displaced_seconds
from app.paths import Paths
from backends.hardware.bandwidth import Bandwidth
from backends.streaming.disk_speed import DiskSpeed
from decoding.estimation.cost import CostModel
from decoding.planning.draft_length import predicted_speedup

MEGABYTE = 1_000_000


def test_it_is_what_is_read_from_disk_instead(
    demo_file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths.of_this_user()

    def extra(drafter: int) -> float | None:
        return displaced_seconds(demo_file, 1, 50 * MEGABYTE, drafter, paths)

    monkeypatch.setattr(
        displaced_weights, "processor_bandwidth", lambda *_: Bandwidth(20e9, "given")
    )
    monkeypatch.setattr(displaced_weights, "known_disk_speed", lambda *_: None)
    assert extra(10 * MEGABYTE) is None
    monkeypatch.setattr(displaced_weights, "known_disk_speed", lambda *_: DiskSpeed(100e6, "given"))
    assert extra(0) == 0.0
    assert extra(10 * MEGABYTE) == pytest.approx(0.1, rel=0.1)
    assert extra(90 * MEGABYTE) == pytest.approx(0.5, rel=0.1)


def test_a_speedup_counts_it() -> None:
    costs = CostModel({1: 1.0, 16: 1.1})
    alone = predicted_speedup(lambda _: 0.8, costs, 0.01)
    beside = predicted_speedup(lambda _: 0.8, costs_beside(costs, 1.0), 0.01)
    assert alone > beside > 0.5 * alone
