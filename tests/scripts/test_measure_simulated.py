"""Gains of drafters on simulated machines."""

import pytest

from scripts.measure_simulated import BODIES, Simulated, main, speedups


@pytest.mark.parametrize("share", [0.0, 0.3, 0.54, 0.9, 1.0])
def test_a_share_for_all_places_keeps_as_many(share: float) -> None:
    kept = ",".join(str(share**place) for place in (1, 2, 3))
    assert Simulated.of(f"head=0.05:{kept}").share == pytest.approx(share, abs=1e-6)


@pytest.mark.slow
def test_a_head_gains_where_passes_cost_the_same_and_loses_nothing_where_they_do_not() -> None:
    head = Simulated.of("head=0.05:.56,.28,.14")
    assert min(speedups(head, BODIES["flat"])) >= 1.35
    assert min(speedups(head, BODIES["two cores"])) >= 0.98


@pytest.mark.slow
def test_what_is_known_of_one_machine_alone_is_left_out_on_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.measure_simulated._SEEDS", 1)
    main(["135M=h100:.5,.25,.125"])
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| 135M | 0.50 |  |  | 1.")
