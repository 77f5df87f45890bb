"""Progress on standard error where it is no terminal: now and then a line of its own."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from app.cli.session import stats_line
from app.cli.terminal import stderr
from app.engine.metrics import Comparison, ReplyMetrics, Standing
from decoding.events import FinishReason
from models.hub import Phase, Progress
from models.hub.progress import describe
from tests.fixtures.metrics import LIVE


def test_lines_are_limited_by_time_and_hold_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Mock(return_value=0.0)
    monkeypatch.setattr(stderr, "time", Mock(monotonic=clock))
    monkeypatch.setattr(stderr, "_PLAIN_LINE_SECONDS", 15.0)
    stderr.begin()
    for second in range(60):
        clock.return_value = second
        stderr.status(f"downloading {second}")
    assert capsys.readouterr().err.splitlines() == [
        "downloading 15",
        "downloading 30",
        "downloading 45",
    ]
    clock.return_value = 70.0
    stderr.progress(1, 4, "chat")
    assert capsys.readouterr().err == "25 %  chat\n"


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


def line(
    monkeypatch: pytest.MonkeyPatch, metrics: ReplyMetrics, reason: FinishReason | None = None
) -> str:
    monkeypatch.setattr("app.cli.session.metrics_of", lambda *_: metrics)
    reply: Any = SimpleNamespace(finish_reason=reason)
    session: Any = None
    return stats_line(session, reply)


def test_the_line_has_the_figures_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line(monkeypatch, LIVE) == (
        "[132 tokens · 9.4 s · 14 tok/s · 1.4× plain ± 0.1 · 61 % drafted]"
    )


def test_a_short_reply_has_no_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(
        LIVE, completion_tokens=45, decode_seconds=0.39, decode_tokens_per_second=114.3,
        drafted_share=0.18, comparison=Comparison(Standing.SHORT),
    )  # fmt: skip
    assert line(monkeypatch, short) == "[45 tokens · 0.4 s · 114 tok/s · 18 % drafted]"


def test_an_early_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line(monkeypatch, LIVE, FinishReason.LENGTH).endswith(" · cut at --max-tokens]")
    nothing = replace(LIVE, completion_tokens=0)
    assert line(monkeypatch, nothing, FinishReason.CANCELLED) == "[no tokens · stopped]"
