"""`specchat verify` finds nothing wrong with the engine, and finds every fault put into it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app import verification
from app.cli.main import main
from decoding import target_pass
from decoding.draft import Draft
from decoding.sampling import Distribution
from decoding.verification import block
from decoding.verification.residual import uncovered
from decoding.verification.token_level import TargetRows, Verdict

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def verify_tiny(
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """Runs the command on a model of random weights, drafted by a disturbed copy."""

    def run(*more: str, noise: float = 0.15) -> tuple[int, str]:
        target, drafter = tiny_llama(seed=1), tiny_llama(seed=1, noise=noise)
        options = ["--model", str(target), "--draft", f"lookup,{drafter}"]
        monkeypatch.setattr(sys, "argv", ["specchat", "verify", *options, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return run


def test_a_sound_engine_is_lossless(
    verify_tiny: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verification, "REPLIES", 400)
    code, said = verify_tiny()
    assert code == 0
    assert "Verdict: lossless" in said
    assert re.search(r"([\d,]+) of \1 tokens in \d+ replies are what plain decoding says", said)
    assert "NOT" not in said


def test_accepting_every_draft_is_found(
    verify_tiny: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    def accept_all(target: TargetRows, draft: Draft, generator: np.random.Generator) -> Verdict:
        return Verdict(len(draft), target[len(draft)].draw(generator.random()))

    monkeypatch.setattr(target_pass, "verify_block", accept_all)
    monkeypatch.setattr(verification, "REPLIES", 50)
    code, said = verify_tiny()
    assert code == 1
    assert "more than rounding explains" in said
    assert "Verdict: NOT lossless" in said


def test_a_wrong_residual_is_found_by_the_distribution_alone(
    verify_tiny: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    def whole_target(
        p_target: Distribution, q_draft: Distribution, share: float
    ) -> tuple[Distribution, float]:
        return p_target, uncovered(p_target, q_draft, share)[1]

    monkeypatch.setattr(block, "uncovered", whole_target)
    code, said = verify_tiny()
    assert code == 1
    assert "not what the model alone gives" in said
    assert "more than rounding explains" not in said


@pytest.mark.slow
def test_a_lossy_rule_is_measured_and_is_no_fault(
    verify_tiny: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verification, "built_in_prompts", lambda: ())
    monkeypatch.setattr(verification, "_rounding", lambda session: 0.0)
    code, said = verify_tiny("--lossy", "lenient:100", noise=1.0)
    assert code == 0
    assert "Verdict: lossy as asked: distance 0." in said
    assert "chance alone" not in said, said


def test_what_is_set_for_answers_does_not_change_what_is_verified(
    verify_tiny: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPECCHAT_LOSSY", "lenient:100")
    monkeypatch.setattr(verification, "built_in_prompts", lambda: ())
    monkeypatch.setattr(verification, "_rounding", lambda session: 0.0)
    monkeypatch.setattr(verification, "REPLIES", 50)
    code, said = verify_tiny()
    assert code == 0
    assert "Verdict: lossless" in said
    code, said = verify_tiny("--lossy", "ears:0")
    assert code == 0
    assert ", which chance alone may explain" in said
