"""The line of figures after an answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.stats_line import stats_line
from app.engine.reply_metrics import ENOUGH_TOKENS
from decoding.planning.parking import State


def line(monkeypatch: pytest.MonkeyPatch, tokens: int) -> str:
    monkeypatch.setattr("app.cli.stats_line.plain_rate", lambda *_: (10.0, "plain steps"))
    statistics = SimpleNamespace(
        completion_tokens=tokens, decode_tokens_per_second=13.0, drafted=20, accepted=10,
        acceptance=0.5, tokens_per_step=1.5, ttft_seconds=None, steps=10, by_drafter={},
    )  # fmt: skip
    drafting = SimpleNamespace(controller=object(), state=State.ON, reason="")
    session: Any = SimpleNamespace(drafting=drafting)
    reply: Any = SimpleNamespace(statistics=statistics, lossy=None, finish_reason=None)
    return stats_line(session, reply)


def test_a_short_reply_has_no_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1.30× plain" in line(monkeypatch, ENOUGH_TOKENS)
    short = line(monkeypatch, ENOUGH_TOKENS - 1)
    assert "plain" not in short
    assert "too short for a speedup" in short
