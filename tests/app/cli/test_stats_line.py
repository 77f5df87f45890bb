"""The line of figures after an answer."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.session import stats_line
from app.engine.metrics import Comparison, ReplyMetrics, Standing
from decoding.events import FinishReason
from tests.fixtures.metrics import LIVE


def line(
    monkeypatch: pytest.MonkeyPatch, metrics: ReplyMetrics, reason: FinishReason | None = None
) -> str:
    monkeypatch.setattr("app.cli.session.reply_metrics", lambda *_: metrics)
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
