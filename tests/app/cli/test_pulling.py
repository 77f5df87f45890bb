"""The line that shows a download."""

import pytest

from models.hub import Phase, Progress
from models.hub.progress import describe

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(Phase.ASKING), "asking the hub …"),
        (Progress(Phase.RECEIVING, 0, 0), "downloading   0 %  0 bytes of 0 bytes"),
        (
            Progress(Phase.RECEIVING, GB, 4 * GB, 20e6),
            "downloading  25 %  1.0 GB of 4.0 GB, 20.0 MB/s, 2 min 30 s left",
        ),
        (
            Progress(Phase.CHECKING, 111 * GB, 222 * GB, 11.1e6),
            "checking  50 %  111.0 GB of 222.0 GB, 11.1 MB/s, 2 h 46 min left",
        ),
        (
            Progress(Phase.RECEIVING, 90, 100, 5.0),
            "downloading  90 %  90 bytes of 100 bytes, 5 bytes/s, 2 s left",
        ),
    ],
)
def test_a_line(progress: Progress, line: str) -> None:
    assert describe(progress) == line
