"""What whole screens look like, in files a person can read and compare."""

import pytest
from app.tui.conversation.dialogue import Turn
from app.tui.status.panel import Panel
from textual.widgets.markdown import MarkdownFence

from app.engine.reply_metrics import DrafterMetrics, MemoryUse, ReplyMetrics
from decoding.planning.parking import State
from decoding.shape import Shape
from tests.app.tui.conftest import Chat, Chatting, Snapshot
from tests.fixtures.screen_text import screen_text
from tests.fixtures.scripted import ScriptedModel

ANSWER = """\
<think>The user wants a list.</think>
Two ways to **add** numbers:

1. with `sum`
2. with a loop

```python
total = sum([1, 2, 3])
```

| way | lines |
| --- | --- |
| sum | 1 |
| loop | 3 |
"""

LIVE = ReplyMetrics(
    model=ScriptedModel(["a"]).info, context_used=160, context_size=8192, state=State.ON, reason="",
    drafters=("lookup", "small"), decision="lookup drafts 6 (list), +1.8 tokens expected",
    shape="tree of 8 in 4 branches", lossy="",
    prompt_tokens=40, cached_prompt_tokens=0, completion_tokens=120, steps=48,
    drafted=100, accepted=72, acceptance=0.72, tokens_per_step=2.5,
    accepted_by_position=(0.9, 0.7, 0.4), drafted_at_position=(48, 32, 20),
    accepted_lengths=(5, 12, 20, 6, 2, 0, 1, 1, 1),
    steps_by_shape={Shape.NONE: 12, Shape.LINE: 30, Shape.PATHS: 0, Shape.TREE: 18},
    by_drafter={
        "lookup": DrafterMetrics(30, 60, 50, 0.01),
        "lookahead:w=5,n=3,g=3": DrafterMetrics(18, 40, 22, 0.4),
    },
    load_seconds=1.0, prefill_seconds=0.2, ttft_seconds=0.2, decode_seconds=2.0,
    decode_tokens_per_second=61.3, draft_seconds=0.4, verify_seconds=1.5, overhead_seconds=0.1,
    plain_tokens_per_second=34.0, plain_source="measured in this reply", speedup=1.8,
    bytes_per_token=364_000_000, bandwidth_bytes_per_second=18.2e9, bandwidth_source="measured",
    wall_tokens_per_second=50.0, times_wall=1.22, energy_joules_per_token=None, energy_source=None,
    peak_memory_bytes=None, memory=MemoryUse(98_000_000, 12_000_000, 94_000_000),
)  # fmt: skip


async def loaded(chat: Chat) -> None:
    await chat.until(lambda: bool(chat.screen.query("#hint")))
    await chat.pilot.pause()


async def talked(chat: Chat) -> None:
    """A chat whose figures do not come from a clock."""
    await loaded(chat)
    dialogue = chat.view.dialogue.fresh()
    ending = "48 tokens · 61.3 tok/s · 1.80× plain · 72 % of drafted accepted"
    dialogue.turns = [
        Turn("user", "How do I add numbers?\nTwo ways, please."),
        Turn("assistant", ANSWER, ending),
        Turn("user", "And then?"),
        Turn("assistant", "Then you have", "3 tokens · stopped"),
    ]
    await chat.view.open(dialogue)
    await chat.until(lambda: bool(chat.screen.query(MarkdownFence)))
    chat.view.transcript.scroll_end(animate=False)
    before = ""
    while before != (before := screen_text(chat.app)):
        await chat.pilot.pause(0.3)


async def test_the_first_screen(chatting: Chatting, snapshot: Snapshot) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await loaded(chat)
        snapshot(chat, "first_screen_80x24")


@pytest.mark.parametrize("size", [(80, 24), (40, 24), (200, 50)])
async def test_a_conversation(
    chatting: Chatting, snapshot: Snapshot, size: tuple[int, int]
) -> None:
    async with chatting(ScriptedModel(["a"]), size) as chat:
        await talked(chat)
        snapshot(chat, f"conversation_{size[0]}x{size[1]}")


async def test_the_panel(chatting: Chatting, snapshot: Snapshot) -> None:
    async with chatting(ScriptedModel(["a"]), (120, 60)) as chat:
        await loaded(chat)
        panel = chat.screen.query_one(Panel)
        panel.show(LIVE, "drafting on (lookup, small)", 70.0)
        await chat.pilot.pause()
        snapshot(chat, "panel_120x60")
