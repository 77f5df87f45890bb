"""What of measured costs is kept for the next start."""

from pathlib import Path

import pytest

from app.calibrations import Calibrations
from app.paths import Paths
from app.target_context import TargetContext
from decoding.cost import Measured
from tests.fixtures.scripted import ScriptedModel


@pytest.mark.parametrize("is_steady", [True, False])
def test_only_what_repeated_passes_agree_on_is_kept(
    bare_home: Path, monkeypatch: pytest.MonkeyPatch, is_steady: bool
) -> None:
    assert not bare_home.exists()
    told: list[str] = []
    calibrations = Calibrations(Paths.of_this_user(), told.append)
    found = Measured({1: 0.02, 4: 0.03, 16: 0.05}, is_steady=is_steady)
    monkeypatch.setattr("app.calibrations.calibrate", lambda context, tokens: found)
    model = ScriptedModel(["a"])
    for _ in range(2):
        costs = calibrations.target(model, TargetContext(model, model.open(64)))
        assert costs.points == found.seconds
    assert len(told) == (1 if is_steady else 2)
    assert calibrations.file(model.info).exists() is is_steady


def test_a_flat_curve_of_before_is_measured_further_and_a_steep_one_is_not(
    bare_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not bare_home.exists()
    calibrations = Calibrations(Paths.of_this_user(), lambda _: None)
    model = ScriptedModel(["a"])
    opened = model.open(128)
    opened.max_logits = 64
    context = TargetContext(model, opened)
    before = [{1: 0.02, 16: 0.03}, {1: 0.02, 16: 0.08}]
    after = {1: 0.02, 16: 0.03, 32: 0.04, 64: 0.05}
    for seconds, kept in zip(before, (after, before[1]), strict=True):
        for found in (seconds, after):
            monkeypatch.setattr(
                "app.calibrations.calibrate", lambda context, tokens, found=found: Measured(found)
            )
            costs = calibrations.target(model, context)
        assert costs.points == kept
        narrow = TargetContext(model, model.open(128))
        assert calibrations.target(model, narrow).points == kept
        calibrations.file(model.info).unlink()
