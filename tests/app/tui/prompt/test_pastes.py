"""Long pastes: folded at once, one unit to the cursor, never lost."""

import pytest
from textual import events

from app.chat.attachments import Attachment, AttachmentKind
from app.tui.prompt.folding import PromptText, is_long
from tests.fixtures.prompt_app import Prompting, prompting

LINES = "a line\n" * 42
OTHER = "another\n" * 42
HUGE = "some words and more\n" * 500_000


async def sent(prompt: Prompting) -> PromptText:
    await prompt.press("enter")
    return prompt.sent[-1]


def paste(name: str, text: str) -> Attachment:
    return Attachment(AttachmentKind.PASTE, name, text)


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("x" * 800, False),
        ("x" * 801, True),
        ("1\n2\n3\n4\n5", False),
        ("1\n2\n3\n4\n5\n", False),
        ("1\n2\n3\n4\n5\n6", True),
    ],
)
def test_what_is_long(text: str, long: bool) -> None:
    assert is_long(text) is long


async def test_a_short_paste_is_inserted(prompt: Prompting) -> None:
    prompt.app.post_message(events.Paste("one\r\ntwo"))
    await prompt.until(lambda: prompt.text == "one\ntwo")


async def test_a_long_paste_is_folded_and_sent_beside_the_text(prompt: Prompting) -> None:
    await prompt.type("see ")
    prompt.app.post_message(events.Paste(LINES.replace("\n", "\r")))
    await prompt.until(lambda: prompt.text == "see [pasted 42 lines]")
    assert (await sent(prompt)).attachments == (paste("[pasted 42 lines]", LINES),)


async def test_the_same_again_unfolds(prompt: Prompting) -> None:
    await prompt.type("see ")
    await prompt.paste(LINES)
    await prompt.paste(LINES)
    assert prompt.text == f"see {LINES}"
    await prompt.press("ctrl+z")
    assert prompt.text == "see [pasted 42 lines]"


@pytest.mark.slow
async def test_a_huge_paste_stays_folded(prompt: Prompting) -> None:
    for _ in range(2):
        await prompt.paste(HUGE)
    assert prompt.text == "[pasted 500,000 lines]"
    assert "too long" in prompt.title
    assert (await sent(prompt)).attachments[0].text == HUGE


async def test_two_pastes_have_two_names(prompt: Prompting) -> None:
    await prompt.paste(LINES)
    await prompt.paste(OTHER)
    first, second = "[pasted 42 lines]", "[pasted 42 lines, 2]"
    assert prompt.text == first + second
    assert (await sent(prompt)).attachments == (paste(first, LINES), paste(second, OTHER))


async def test_a_placeholder_is_one_unit(prompt: Prompting) -> None:
    await prompt.type("ab")
    await prompt.press("left")
    await prompt.paste(LINES)
    await prompt.press("left", "x", "right", "y")
    assert prompt.text == "ax[pasted 42 lines]yb"
    prompt.area.move_cursor((0, 5))
    await prompt.press("z")
    assert prompt.text == "axz[pasted 42 lines]yb"


@pytest.mark.parametrize("keys", [("backspace",), ("left", "delete"), ("shift+left", "backspace")])
async def test_a_deleted_paste_goes_and_undo_brings_it_back(
    prompt: Prompting, keys: tuple[str, ...]
) -> None:
    await prompt.type("see ")
    await prompt.paste(LINES)
    await prompt.press(*keys)
    assert prompt.text == "see "
    await prompt.press("ctrl+z")
    assert (await sent(prompt)).attachments == (paste("[pasted 42 lines]", LINES),)


async def test_a_deleted_paste_is_not_sent(prompt: Prompting) -> None:
    await prompt.type("see ")
    await prompt.paste(LINES)
    await prompt.press("backspace")
    assert (await sent(prompt)).attachments == ()


@pytest.mark.slow
async def test_a_placeholder_in_two_places_is_two_pastes(prompt: Prompting) -> None:
    await prompt.paste(LINES)
    await prompt.type("[pasted 42 lines]")
    assert len((await sent(prompt)).attachments) == 2


async def test_a_text_brought_back_keeps_its_own_paste(prompt: Prompting) -> None:
    await prompt.paste(LINES)
    await prompt.press("enter")
    await prompt.paste(OTHER)
    await prompt.press("up")
    assert prompt.area.written.attachments[0].text == LINES
    await prompt.press("ctrl+z")
    assert prompt.area.written.attachments[0].text == OTHER


async def test_a_huge_text_written_by_the_app_is_folded(prompt: Prompting) -> None:
    prompt.area.write(HUGE)
    assert prompt.text == "[pasted 500,000 lines]"
    assert (await sent(prompt)).attachments[0].text == HUGE


async def test_odd_pastes_are_kept_whole() -> None:
    odd = "\x1b]0;title\x07\u202eabc\0\t한국어" + "x" * 900
    async with prompting((10, 3)) as prompt:
        await prompt.paste(odd)
        assert (await sent(prompt)).attachments[0].text == odd
