"""A short campaign of damaged folders with heads, by a seed of its own."""

import pytest

from scripts.fuzzing.campaign import READ, REFUSED, Summary, readings
from scripts.fuzzing.model_files import HeadFolders

SEED = 61


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.nightly)])
def test_a_damaged_head_is_refused_by_name_or_sound(count: int) -> None:
    summary = Summary()
    for found in readings(HeadFolders, count, SEED, workers=1):
        summary.add(found)
    assert not summary.faults
    assert min(summary.outcomes[READ], summary.outcomes[REFUSED]) > count // 20
