"""Header and keys bar: one row each that says less as it narrows; keys can be clicked."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from app.engine.metrics import ReplyMetrics
from app.tui.keys_bar import KeysBar, shown_key
from app.tui.store import Live
from tests.fixtures.prompt_app import Prompting, prompting

TITLE = "Correct the spelling of letter.md"


def using(tokens: int) -> Live:
    """Figures of an answer that fills a context of 8,192 tokens so far."""
    figures = SimpleNamespace(context_used=tokens, context_size=8192)
    return Live(cast(ReplyMetrics, figures))


@pytest.mark.parametrize(
    ("width", "title", "used", "row"),
    [
        (80, TITLE, 720, f"{TITLE}                 qwen3-4b · CPU · context 9 %"),
        (80, TITLE, 900, f"{TITLE}                qwen3-4b · CPU · context 11 %"),
        (40, TITLE, 720, "Correct the spelling…   qwen3-4b · 9 %"),
        (40, TITLE, 900, "Correct the spelling…  qwen3-4b · 11 %"),
        (40, "Summarise report.md in five lines", 3350, "Summarise report.md…   qwen3-4b · 41 %"),
        (40, "Boat names", 410, "Boat names      qwen3-4b · context 5 %"),
        (40, "Names for a boat", 6520, "Names for a boat       qwen3-4b · 80 %"),
        (40, "Names for a boat", 6560, "Names for a boat     qwen3-4b · ▲ 80 %"),
        (40, "", 0, "New chat                      qwen3-4b"),
        (10, TITLE, 720, "Correct…"),
    ],
)
async def test_the_row_of_the_mock_up(width: int, title: str, used: int, row: str) -> None:
    async with prompting((width, 12)) as prompt:
        prompt.store.title = title
        prompt.store.live = using(used)
        assert (await prompt.lines())[0] == f" {row}"


async def test_a_model_that_streams_says_so() -> None:
    async with prompting((80, 12)) as prompt:
        status = prompt.store.status
        assert status.loaded is not None
        info = replace(status.loaded.info, streamed_bytes_per_token=1)
        prompt.store.status = replace(status, loaded=replace(status.loaded, info=info))
        assert (await prompt.lines())[0].endswith("qwen3-4b · CPU, streams")


async def test_a_program_that_is_answered_is_named_where_there_is_room() -> None:
    async with prompting((80, 12)) as prompt:
        prompt.store.status = replace(prompt.store.status, program="editor")
        assert (await prompt.lines())[0].endswith("answering editor · qwen3-4b · CPU")
    async with prompting((40, 12)) as prompt:
        prompt.store.status = replace(prompt.store.status, program="editor")
        assert "editor" not in (await prompt.lines())[0]


async def test_what_enter_does_with_a_text_is_said_beside_a_queue_and_a_broken_off_answer(
    prompt: Prompting,
) -> None:
    await prompt.type("text")
    prompt.store.is_broken_off = True
    assert "Enter send" in (await prompt.lines())[-1]
    prompt.store.queued = 2
    assert "Enter queues this and sends the next" in (await prompt.lines())[-1]


async def test_a_click_runs_the_action(prompt: Prompting) -> None:
    (row,) = [line for line in await prompt.lines() if "F1 help" in line]
    await prompt.pilot.click(KeysBar, offset=(row.index("F1"), 0))
    await prompt.until(lambda: prompt.app.actions == ["help"])


def test_keys_as_they_are_written() -> None:
    keys = ["escape", "ctrl+l,f10", "f1", "alt+o", "ctrl+shift+f5"]
    assert [shown_key(key) for key in keys] == ["Esc", "Ctrl+L", "F1", "Alt+O", "Ctrl+Shift+F5"]
