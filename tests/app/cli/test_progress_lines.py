"""Progress on standard error where it is no terminal: now and then a line of its own."""

import pytest

from app.cli.terminal import stderr


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_lines_are_limited_by_time_and_hold_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(stderr, "_plain_progress", stderr.PlainProgress(15.0, clock))
    for second in range(60):
        clock.seconds = second
        stderr.status(f"downloading {second}")
    assert capsys.readouterr().err.splitlines() == [
        "downloading 15",
        "downloading 30",
        "downloading 45",
    ]
    clock.seconds = 70.0
    stderr.progress(1, 4, "chat")
    assert capsys.readouterr().err == "25 %  chat\n"
