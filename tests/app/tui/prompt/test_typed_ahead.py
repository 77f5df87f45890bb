"""Keys that come quicker than the app: Enter sends what stood there, nothing typed is lost."""

from textual import events

from tests.fixtures.prompt_app import Prompting, prompting

_KEYS = {"\r": "enter", "/": "slash", " ": "space", "\x03": "ctrl+c"}


def hurry(prompt: Prompting, text: str) -> None:
    """Have keys wait for the prompt all at once, as on a busy machine."""
    for letter in text:
        character = letter if letter.isprintable() else None
        prompt.area.post_message(events.Key(_KEYS.get(letter, letter), character))


async def test_what_is_typed_behind_a_question_stays() -> None:
    async with prompting() as prompt:
        hurry(prompt, "one\rtwo")
        await prompt.until(lambda: prompt.text == "two")
        assert prompt.submitted == ["one"]


async def test_two_questions_at_once_are_two() -> None:
    async with prompting() as prompt:
        hurry(prompt, "one\rtwo\r")
        await prompt.until(lambda: prompt.submitted == ["one", "two"])


async def test_a_whole_command_is_not_cut_to_what_is_offered_for_its_beginning() -> None:
    async with prompting() as prompt:
        await prompt.type("/set")
        hurry(prompt, " temperature 0.5\r")
        await prompt.until(lambda: prompt.text == "")
        assert prompt.submitted == []


async def test_a_command_that_is_picked_goes_on_with_what_is_typed() -> None:
    async with prompting() as prompt:
        await prompt.type("/set")
        hurry(prompt, "\rtop")
        await prompt.until(lambda: prompt.text == "/set top")


async def test_a_wrong_command_stays_in_front_of_what_was_typed_since() -> None:
    async with prompting() as prompt:
        hurry(prompt, "/wrong\rtwo")
        await prompt.until(lambda: prompt.text == "/wrongtwo")


async def test_what_is_typed_behind_a_cleared_text_stays() -> None:
    async with prompting() as prompt:
        hurry(prompt, "one\x03two")
        await prompt.until(lambda: prompt.text == "two")
