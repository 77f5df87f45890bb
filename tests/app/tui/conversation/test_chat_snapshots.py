"""What a chat looks like, at the widths of a full, a usual and a narrow terminal."""

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, USER
from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.screen_text import settled_text
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.snapshots import compare_snapshot

SIZES = ((120, 36), (80, 24), (40, 20))

LETTER = """Dear Ms Lindqvist,

thank you for your letter of the third of April. The weather here is often rainy, so it is wise \
to bring an umbrella when you come.

We look forward to your visit."""
CODE = """```python
changed = {"wether": "weather", "Aprill": "April", "offen": "often", "umbrela": "umbrella"}
```"""
REPORT = Attachment(AttachmentKind.FILE, "report.md", "word " * 200)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


async def compare(chat: Chat, name: str, config: pytest.Config) -> None:
    width, height = chat.app.size
    shown = await settled_text(chat.pilot)
    compare_snapshot(config, f"chat_{name}_{width}x{height}", shown)


def say(dialogue: Dialogue, question: str, answer: str, ending: str, *files: Attachment) -> None:
    dialogue.add(USER, question, files)
    turn = dialogue.add(ASSISTANT, answer)
    turn.ending = ending
    dialogue.save(turn)


def letter(history: None = None) -> Dialogue:
    dialogue = Dialogue(history)
    figures = "132 tokens · 9.4 s · 14 tok/s · 1.4× plain ± 0.1 · 61 % drafted"
    say(dialogue, "Correct the spelling of @letter.md", LETTER, figures)
    say(dialogue, "Which words did you change?", "Four.", "2 tokens · 0.2 s")
    second = dialogue.add_version(dialogue.turns[2], "Which words did you change? As Python.")
    answer = dialogue.add(ASSISTANT, CODE)
    answer.ending = "58 tokens · 4.4 s · 13 tok/s · 52 % drafted"
    dialogue.save(answer)
    assert second in dialogue.turns
    return dialogue


@pytest.mark.slow
async def test_finished(
    chatting: Chatting, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    async with chatting(ScriptedModel(["a"]), size, loads=False, keeps=False) as chat:
        await chat.view.open(letter())
        await chat.pilot.pause()
        await compare(chat, "finished", pytestconfig)


async def test_queue(
    chatting: Chatting, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    async with chatting(ScriptedModel(["a"]), size, loads=False, keeps=False) as chat:
        dialogue = Dialogue(None)
        dialogue.set_system("Answer with the text alone.")
        ending = "stopped after 71 tokens · Ctrl+T continues"
        say(dialogue, "Summarise @report.md in five lines", LETTER, ending, REPORT)
        dialogue.enqueue("What does it leave out?")
        dialogue.enqueue("Compare it with [pasted 42 lines]")
        await chat.view.open(dialogue)
        await chat.pilot.pause()
        await compare(chat, "queue", pytestconfig)


async def test_no_model(
    chatting: Chatting, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    async with chatting(ScriptedModel(["a"]), size, loads=False, keeps=False) as chat:
        await chat.view.show_fault(
            "mine.gguf cannot be loaded: the file is incomplete (1.1 of 2.5 GB).",
            "Enter tries again · Ctrl+L chooses another",
        )
        await chat.view.send("Why is the sky blue?")
        await chat.pilot.pause()
        await compare(chat, "no_model", pytestconfig)


async def test_errors(
    chatting: Chatting, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    async with chatting(ScriptedModel(["a"]), size, loads=False, keeps=False) as chat:
        dialogue = Dialogue(None)
        say(dialogue, "Why is the sky blue?", "Short waves are", "")
        say(dialogue, "And why is it red at dusk?", "Then light travels further through the", "")
        for turn in dialogue.turns:
            turn.is_growing = False
        await chat.view.open(dialogue)
        await chat.pilot.pause()
        await compare(chat, "interrupted", pytestconfig)
