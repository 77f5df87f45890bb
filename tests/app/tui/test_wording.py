"""Figures in words: what was not measured, or says nothing, is left out."""

from dataclasses import replace

import pytest

from app.ahead.expected import AheadState
from app.engine.metrics import Comparison, Standing
from app.tui import wording
from app.tui.wording import remedy_here, sets_context
from backends.base import PromptTooLongError, UsageError
from decoding.events import FinishReason
from decoding.planning.pausing import Shortfall, State
from decoding.sampling.settings import parse_lossy
from tests.fixtures.metrics import LIVE

LOSSY = replace(LIVE, lossy="lossy: ears 0.1")
SHORT = replace(
    LIVE, completion_tokens=45, decode_seconds=0.39, decode_tokens_per_second=114.3,
    drafted_share=0.18, comparison=Comparison(Standing.SHORT),
)  # fmt: skip


def test_a_whole_answer_has_its_figures() -> None:
    assert wording.ending(LIVE, FinishReason.STOP) == (
        "132 tokens · 9.4 s · 14 tok/s · 1.4× plain ± 0.1 · 61 % drafted"
    )
    assert wording.ending(SHORT, FinishReason.STOP) == (
        "45 tokens · 0.4 s · 114 tok/s · 18 % drafted"
    )


def test_an_answer_without_drafts_compares_nothing() -> None:
    plain = replace(
        LIVE, drafted=0, accepted=0, drafted_share=0.0, comparison=Comparison(Standing.PLAIN)
    )
    assert wording.ending(plain, FinishReason.STOP) == "132 tokens · 9.4 s · 14 tok/s"


def test_what_was_not_measured_is_absent() -> None:
    one = replace(
        SHORT, completion_tokens=1, decode_seconds=None, decode_tokens_per_second=None, drafted=0
    )
    assert wording.ending(one, FinishReason.STOP) == "1 token"
    assert wording.ending(None, None) == ""
    assert wording.ending(None, None, "the disk is full") == "the disk is full"


def test_a_slow_start_is_told() -> None:
    slow = replace(SHORT, ttft_seconds=3.2)
    assert wording.ending(slow, FinishReason.STOP).endswith("18 % drafted · started after 3 s")
    assert "started" not in wording.ending(replace(SHORT, ttft_seconds=2.0), FinishReason.STOP)


def test_an_answer_that_can_go_on_tells_its_length_once() -> None:
    stopped = wording.ending(replace(SHORT, completion_tokens=71), FinishReason.CANCELLED)
    assert stopped == "114 tok/s · 18 % drafted · stopped after 71 tokens · Ctrl+T continues"
    cut = wording.ending(replace(SHORT, completion_tokens=2048), FinishReason.LENGTH)
    assert cut.endswith(" · cut at 2,048 tokens · Ctrl+T continues")
    assert wording.ending(None, FinishReason.CANCELLED) == (
        "stopped after 0 tokens · Ctrl+T continues"
    )


def test_a_lossy_answer_says_so() -> None:
    assert wording.ending(LOSSY, FinishReason.STOP).endswith("61 % drafted · lossy: ears 0.1")
    assert "lossy" not in wording.ending(LIVE, FinishReason.STOP)


def test_what_goes_on_with_a_lossy_answer_is_lossy() -> None:
    previous = wording.ending(LOSSY, FinishReason.CANCELLED)
    same = wording.ending(LOSSY, FinishReason.STOP, continued=previous)
    assert same.count("lossy") == 1
    assert wording.lossy_part(wording.ending(LIVE, FinishReason.STOP, continued=previous)) == (
        "lossy: ears 0.1"
    )
    assert wording.lossy_part(wording.ending(LIVE, FinishReason.STOP)) == ""


def test_figures_of_a_continued_answer_say_that_they_are_of_its_end() -> None:
    for previous in ("120 tokens · 61 tok/s", ""):
        ending = wording.ending(LIVE, FinishReason.STOP, continued=previous)
        assert ending.startswith("the last 132 tokens · 9.4 s")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ""), (0.44, "0.4 tok/s"), (9.94, "9.9 tok/s"), (9.96, "10 tok/s"),
        (113.6, "114 tok/s"), (1234.0, "1,234 tok/s"),
    ],
)  # fmt: skip
def test_rates_are_no_finer_than_they_are_known(value: float | None, words: str) -> None:
    assert wording.rate(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.04, "0.0 s"), (9.44, "9.4 s"), (99.96, "1 min 40 s"), (125.0, "2 min 5 s")],
)
def test_durations(value: float, words: str) -> None:
    assert wording.seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0 %"), (0.001, "<1 %"), (0.18, "18 %"), (1.0, "100 %")]
)
def test_a_share_is_none_only_if_there_is_none(value: float, words: str) -> None:
    assert wording.percent(value) == words


def test_the_prompt_tells_what_becomes_of_drafting() -> None:
    paused = replace(LIVE, state=State.PAUSED)
    short = replace(paused, shortfall=Shortfall(0.11, 0.22))
    rule = parse_lossy("ears:0.1")
    assert wording.drafting("auto", None, None) == "auto"
    assert wording.drafting("auto", LIVE, None) == "auto"
    assert wording.drafting("qwen3-0.6b\x1b[2J", LIVE, None).startswith("qwen3-0.6b")
    assert "\x1b" not in wording.drafting("qwen3-0.6b\x1b[2J", LIVE, None)
    assert wording.drafting("auto", paused, None) == "paused"
    assert wording.drafting("auto", short, None) == "paused (11 % accepted, needs 22 %)"
    assert wording.drafting("off", short, rule) == "off"
    assert wording.drafting("auto", short, rule) == "▲ lossy"
    assert wording.drafting("mtp", replace(LIVE, state=State.OFF), None) == "off"


def test_an_error_in_the_frame_has_no_full_stop() -> None:
    error = UsageError("an answer is in progress", "", "Esc stops it.")
    assert wording.fault(error) == "an answer is in progress · Esc stops it"
    assert wording.fault(UsageError("which file?")) == "which file?"


@pytest.mark.parametrize(
    ("state", "is_typing", "told"),
    [
        (None, True, []),
        (AheadState(1850, 2010), True, ["read 1,850 of 2,010", "read 92 %"]),
        (AheadState(1850, 2010), False, ["read 1,850 of 2,010", "read 92 %"]),
        (AheadState(2010, 2010), True, ["read 2,010 of 2,010", "read 100 %"]),
        (AheadState(2010, 2010), False, []),
        (AheadState(2007, 2010), False, []),
        (AheadState(2007, 2010), True, ["read 2,007 of 2,010", "read 100 %"]),
        (AheadState(0, 2010), True, []),
        (AheadState(40, 60), True, []),
        (AheadState(1850, 2010, "on battery"), True, []),
    ],
)
def test_what_is_read_ahead(state: AheadState | None, is_typing: bool, told: list[str]) -> None:
    assert wording.read_ahead(state, is_typing=is_typing) == told


def test_the_context_is_set_inside_the_app() -> None:
    error = PromptTooLongError(33, 10)
    assert sets_context(error)
    assert "--ctx" not in remedy_here(error)
    assert "/context" in remedy_here(error)
    assert "F8" in remedy_here(error)


def test_other_remedies_stay_as_they_are() -> None:
    error = UsageError("no", "", "Free some memory.")
    assert not sets_context(error)
    assert remedy_here(error) == "Free some memory."
