"""`specchat verify` with MLX: what is judged on the device is checked too."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.cli.session import open_session
from app.evaluation import lossless_check
from backends.mlx import device_sampling as on_device

Verify = Callable[[int], CompletedProcess[str]]


@pytest.fixture
def verify_small(
    small_mlx: Callable[..., Path],
    specchat: Callable[..., CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Verify:
    """Checks so many sampled replies of a small model drafted by its copy in four bits."""

    def run(replies: int) -> CompletedProcess[str]:
        monkeypatch.setattr(lossless_check, "built_in_prompts", lambda: ())
        monkeypatch.setattr(lossless_check, "_rounding", lambda session, context: 0.0)
        monkeypatch.setattr(lossless_check, "REPLIES", replies)
        monkeypatch.setattr(lossless_check, "_SECONDS", math.inf)  # as many on a slow machine
        return specchat("verify", "--model", str(small_mlx("plain")), "--draft", "self:q4_0")

    return run


def drafted(said: str, where: str) -> str:
    """What was drafted under some settings."""
    begin = f"{where}, tokens drafted: "
    return next(line for line in said.splitlines() if line.startswith(begin))


@pytest.mark.usefixtures("drafting_never_pays")
def test_the_device_judges_where_no_penalty_depends_on_the_text(verify_small: Verify) -> None:
    ended = verify_small(40)
    assert ended.returncode == 0
    lines, penalised = (
        drafted(ended.stdout, where)
        for where in ("Temperature 1", "Temperature 1 with a repeat penalty")
    )
    assert "lines of self:q4_0 by block verification on the device" in lines
    assert "lines of self:q4_0 by block verification" in penalised
    assert "on the device" not in penalised


@pytest.mark.usefixtures("drafting_never_pays")
def test_a_block_rule_with_a_wrong_ratio_on_the_device_is_found(
    verify_small: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = on_device._shares

    def twice_as_likely(p_of_token: Any, q_of_token: Any) -> Any:
        return shares(p_of_token, q_of_token // 2 + 1)

    monkeypatch.setattr(on_device, "_shares", twice_as_likely)
    lines_alone = partial(open_session, every_form=False)  # few replies tell then
    monkeypatch.setattr(
        "app.cli.commands.verify.open_session", lambda options, **_: lines_alone(options)
    )
    ended = verify_small(250)
    assert ended.returncode == 1
    assert "do not follow the model's own distribution" in ended.stdout
