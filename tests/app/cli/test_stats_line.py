"""The line of figures after an answer."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.stats_line import stats_line
from app.engine.comparison import ENOUGH_TOKENS
from tests.fixtures.metrics import LIVE


def line(monkeypatch: pytest.MonkeyPatch, tokens: int) -> str:
    metrics = replace(LIVE, completion_tokens=tokens, drafted=20, speedup=1.3)
    monkeypatch.setattr("app.cli.stats_line.reply_metrics", lambda *_: metrics)
    reply: Any = SimpleNamespace(finish_reason=None)
    session: Any = None
    return stats_line(session, reply)


def test_a_short_reply_has_no_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1.30× plain" in line(monkeypatch, ENOUGH_TOKENS)
    short = line(monkeypatch, ENOUGH_TOKENS - 1)
    assert "plain" not in short
    assert "too short for a speedup" in short
