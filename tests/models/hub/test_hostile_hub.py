"""Every mode of the campaign: `python -m scripts.hostile_hub` prints them."""

import sys
from pathlib import Path

import pytest

from scripts.hostile_hub.server import Mode
from scripts.hostile_hub.trial import MODES, try_mode


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_hostile_hub_ends_in_a_named_error_or_the_right_file(mode: Mode, tmp_path: Path) -> None:
    assert try_mode(mode, tmp_path).faults == ()


def test_modes_have_names_of_their_own() -> None:
    assert len({mode.name for mode in MODES}) == len(MODES) >= 60
