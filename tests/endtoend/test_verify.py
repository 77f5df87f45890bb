"""`specchat verify` finds nothing wrong with the engine, and finds every fault put into it."""

import json
import math
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.builtin_prompts import built_in_prompts
from app.cli.main import main
from app.evaluation import lossless_check
from decoding.draft import PointMassTree, SampledLine
from decoding.sampling.distribution import uniform
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, TreeRows, TreeVerdict, Verdict
from tests.fixtures.card import has_card
from tests.fixtures.wrong_rules import first_failure, forget_residual

pytestmark = pytest.mark.usefixtures("llamacpp")

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify_tiny(
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Verify:
    """Runs the command on a model of random weights, drafted by a disturbed copy."""

    def run(*more: str, noise: float = 0.15, draft: str = "lookup,{}") -> tuple[int, str]:
        target, drafter = tiny_llama(seed=1), tiny_llama(seed=1, noise=noise)
        options = ["--model", str(target), "--draft", draft.format(drafter)]
        monkeypatch.setenv("SPECCHAT_THREADS", "1")
        monkeypatch.setattr(lossless_check, "_SECONDS", math.inf)  # as many on a slow machine
        monkeypatch.setattr(sys, "argv", ["specchat", "verify", *options, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_a_sound_engine_is_lossless(verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lossless_check, "REPLIES", 200)
    code, said = verify_tiny()
    assert code == 0
    assert "Verdict: lossless" in said
    found = re.search(r"([\d,]+) of ([\d,]+) tokens in \d+ answers are plain decoding's", said)
    assert found is not None
    same, total = (int(count.replace(",", "")) for count in found.groups())
    assert total - same == said.count("a near-tie decided by rounding") <= 1
    assert "NOT" not in said
    for where in ("Temperature 0", "Temperature 1", "Temperature 1 with a repeat penalty"):
        drafted = next(line for line in said.splitlines() if line.startswith(f"{where}, tokens"))
        assert "lines of lookup by sample match" in drafted
        assert "by block verification" in drafted
    assert "not tested" not in said


@pytest.mark.slow
def test_ctrl_c_ends_a_quick_check_with_a_verdict_so_far(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    replied, prompts = lossless_check.greedy_reply, iter(range(9))

    def interrupted(*arguments: Any) -> Any:
        if next(prompts) == 0:
            signal.raise_signal(signal.SIGINT)
        return replied(*arguments)

    monkeypatch.setattr(lossless_check, "greedy_reply", interrupted)
    code, said = verify_tiny("--quick", "--json")
    told = json.loads(said)
    assert (code, told["lossless"], told["complete"]) == (130, True, False)
    assert told["verdict"].startswith("Verdict so far: lossless")
    assert any("tokens in 1 answer are" in one["text"] for one in told["findings"])
    assert not any("Temperature 1" in one["text"] for one in told["findings"])


def check_the_law_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy answers are left out, and the rounding where it is 0.0, as measuring it takes time."""
    monkeypatch.setattr(lossless_check, "_greedy", lambda pair, rounding: iter(()))
    if not has_card():
        monkeypatch.setattr(lossless_check, "_rounding", lambda session, context: 0.0)


@pytest.fixture
def sampled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is drawn is checked, and of that as much as shows a gross fault."""
    check_the_law_alone(monkeypatch)
    monkeypatch.setattr(lossless_check, "REPLIES", 400)


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone")
def test_what_did_not_come_up_is_named(verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lossless_check, "REPLIES", 4)
    code, said = verify_tiny(draft="retrieval,{}")
    assert code == 0
    words = "Temperature 1, not tested, as none occurred: lines of retrieval by sample match."
    assert words in said


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone", "drafting_never_pays")
def test_trees_and_paths_of_a_model_named_alone_are_drafted_though_they_would_not_gain_here(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    """Another start may measure costs at which they do, and the verdict is for that one too."""
    monkeypatch.setattr(lossless_check, "REPLIES", 40)
    code, said = verify_tiny(draft="{}")
    assert code == 0
    drafted = next(line for line in said.splitlines() if line.startswith("Temperature 1, tokens"))
    assert re.search(r"trees of tree\(\S+\) by traversal verification", drafted)
    assert re.search(r"chosen lines of paths\(\S+\) by block verification", drafted)


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone", "drafting_never_pays")
def test_every_form_of_a_drafter_model_and_of_what_it_is_part_of_is_drafted(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    """Trees, chosen lines, cascades, votes and the target's own guesses, none of which pays."""
    monkeypatch.setattr(lossless_check, "REPLIES", 80)
    code, said = verify_tiny(
        draft="tree({}),paths(self:q8_0),cascade(lookup,self:q4_0),vote(ngram,self:skip=1),"
        "jacobi,lookahead"
    )
    assert code == 0
    for where in ("Temperature 1", "Temperature 1 with a repeat penalty"):
        drafted = next(line for line in said.splitlines() if line.startswith(f"{where}, tokens"))
        assert "chosen lines of paths(self:q8_0) by block verification" in drafted
        assert "lines of cascade(lookup,self:q4_0) by block verification" in drafted
        assert "lines of vote(ngram,self:skip=1) by sample match" in drafted
        assert "lines of jacobi by sample match" in drafted
        assert "trees of lookahead by sample match" in drafted
        assert re.search(r"trees of tree\(\S+\) by traversal verification", drafted)
    assert "Temperature 1, not tested" not in said


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone")
def test_a_block_that_ends_at_the_first_failure_is_found(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    """It is right for drafts of one token."""
    monkeypatch.setattr(lossless_check, "REPLIES", 800)  # a quarter of which begin with a line
    monkeypatch.setattr(target_pass, "verify_block", first_failure)
    code, said = verify_tiny(noise=0.1)
    assert code == 1
    assert "do not follow the model's own distribution" in said


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone", "drafting_never_pays")
def test_a_traversal_that_forgets_the_residual_is_found(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    forget_residual(monkeypatch)
    code, said = verify_tiny(noise=0.1, draft="lookup,tree({})")
    assert code == 1
    assert "do not follow the model's own distribution" in said


@pytest.mark.slow
@pytest.mark.usefixtures("sampled_alone", "drafting_never_pays")
def test_a_tree_that_keeps_a_sibling_is_found(verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch):
    def sibling(
        target: TreeRows, draft: PointMassTree, generator: np.random.Generator
    ) -> TreeVerdict:
        target[()].draw(uniform(generator))
        return TreeVerdict((0,), target[(0,)].draw(uniform(generator)))

    monkeypatch.setattr(target_pass, "verify_point_mass_tree", sibling)
    code, said = verify_tiny(draft="lookup,lookahead")
    assert code == 1
    assert "do not follow the model's own distribution" in said


@pytest.mark.slow
def test_accepting_every_draft_is_found(verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch):
    def accept_all(
        target: TargetRows, draft: SampledLine, generator: np.random.Generator
    ) -> Verdict:
        count = len(draft.tokens)
        return Verdict(count, target[count].draw(generator.random()))

    monkeypatch.setattr(target_pass, "verify_block", accept_all)
    monkeypatch.setattr(lossless_check, "REPLIES", 50)
    code, said = verify_tiny()
    assert code == 1
    assert "more than rounding explains" in said
    assert "Verdict: NOT lossless" in said


@pytest.mark.slow
def test_a_wrong_residual_is_found_by_the_distribution_alone(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    forget_residual(monkeypatch)
    monkeypatch.setattr(lossless_check, "REPLIES", 600)
    prompts = built_in_prompts()[:2]
    monkeypatch.setattr(lossless_check, "built_in_prompts", lambda: prompts)
    code, said = verify_tiny()
    assert code == 1
    assert "do not follow the model's own distribution" in said
    assert "more than rounding explains" not in said


@pytest.mark.slow
def test_a_lossy_rule_is_measured_and_is_no_fault(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    check_the_law_alone(monkeypatch)
    code, said = verify_tiny("--lossy", "lenient:100", noise=0.1)
    assert code == 0
    assert "Verdict: lossy as asked: distance 0." in said
    assert "chance alone" not in said, said


@pytest.mark.slow
def test_the_verdict_in_json(verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch):
    check_the_law_alone(monkeypatch)
    monkeypatch.setattr(lossless_check, "REPLIES", 20)
    code, said = verify_tiny("--json", draft="lookup")
    verdict = json.loads(said)
    assert (code, verdict["schema"], verdict["lossless"], verdict["distance"]) == (0, 1, True, None)
    assert verdict["drafter"] == "lookup"
    assert all(finding["lossless"] for finding in verdict["findings"])


@pytest.mark.slow
def test_what_is_set_for_answers_does_not_change_what_is_verified(
    verify_tiny: Verify, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPECCHAT_LOSSY", "lenient:100")
    check_the_law_alone(monkeypatch)
    monkeypatch.setattr(lossless_check, "REPLIES", 50)
    code, said = verify_tiny()
    assert code == 0
    assert "Verdict: lossless" in said
    code, said = verify_tiny("--lossy", "ears:0")
    assert code == 0
    assert ", which chance alone may explain" in said
