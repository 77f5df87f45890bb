"""Any keys in any order: what the app takes out of the prompt can be had back."""

import random
import re

import pytest

from app.tui.prompt import area as messages
from app.tui.prompt.folding import PromptText
from tests.fixtures.prompt_app import Prompting, prompting

LINES = "a line\n" * 42
KEYS = (
    "ctrl+c", "escape", "up", "down", "enter", "ctrl+j", "tab", "left", "right", "space",
    "ctrl+z", "ctrl+y", "ctrl+d", "home", "end", "slash", "at",
)  # fmt: skip


async def act(prompt: Prompting, dice: random.Random, number: int) -> str:
    """Do something that a user, or the screen for the user, can do; returns the key, if any."""
    match dice.randrange(12):
        case 0:
            await prompt.paste(f"{number} {LINES}")
        case 1:
            prompt.area.write(f"written{number}")
        case 2:
            prompt.area.put_before(PromptText(f"before{number}"))
        case 3:
            prompt.area.begin_edit(PromptText(f"question{number}"), 2)
        case 4:
            prompt.area.end_edit()
        case 5:
            prompt.store.is_answering = not prompt.store.is_answering
        case 6 | 7 | 8:
            await prompt.type(f"w{number}")
        case _:
            key = dice.choice(KEYS)
            await prompt.press(key)
            return key
    return ""


def is_within(before: str, after: str) -> bool:
    """Whether a text is still there, perhaps with more typed into it."""
    letters = iter(after)
    return all(letter in letters for letter in before)


def findable(prompt: Prompting) -> list[PromptText]:
    """All that is in the prompt, sent, or among the earlier texts."""
    texts = [*prompt.area.unsent, *prompt.area.earlier]
    for event in prompt.app.messages:
        if isinstance(event, messages.Submitted):
            texts.append(event.written)
        elif isinstance(event, messages.CommandPicked):
            texts.append(PromptText(event.text))
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_random_keys_lose_nothing(seed: int) -> None:
    dice = random.Random(seed)
    async with prompting(dice.choice([(80, 24), (40, 20), (10, 3)])) as prompt:
        seen: list[PromptText] = []
        for number in range(60):
            before = prompt.area.written
            undoable = len(prompt.area.history.undo_stack)
            key = await act(prompt, dice, number)
            after = prompt.area.written
            if re.fullmatch(r"question\d+", before.text) or before.text.startswith("/"):
                continue  # an edit without a change, or a command
            is_taken = not is_within(before.text.strip(), after.text)
            is_own = key in ("ctrl+z", "ctrl+y")
            if is_taken and not is_own and len(prompt.area.history.undo_stack) <= undoable:
                seen.append(before)
        found = findable(prompt)
        for one in seen:
            assert any(
                is_within(one.text.strip(), other.text)
                and {paste.text for paste in one.attachments}
                <= {paste.text for paste in other.attachments}
                for other in found
            ), one
