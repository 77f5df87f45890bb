"""Progress on standard error where it is no terminal: now and then a line of its own."""

from unittest.mock import Mock

import pytest

from app.cli.terminal import stderr


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
