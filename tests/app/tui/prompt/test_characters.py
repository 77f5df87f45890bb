"""One key passes or deletes what a person takes for one character, in every field."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import regex
from textual.app import App
from textual.events import Key
from textual.widgets.input import Selection

from app.tui.text_fields import PrintableInput, PrintableTextArea, character_at
from tests.fixtures.prompt_app import Prompting, prompting

CHARACTERS = [
    "a", " ", "é", "漢",
    "👩\u200d👩\u200d👧",  # a family
    "🇩🇪", "🇫🇷",
    "👍🏽",
    "1\ufe0f\u20e3",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England
    "e\u0301", "x\u0301\u0327\u0308",
    "नि", "ที่", "\u1112\u1161\u11ab",
]  # fmt: skip


def drawn(random: Random) -> list[str]:
    return random.choices(CHARACTERS, k=random.randint(1, 12))


class _Field(App[None]):
    """One field, of any kind."""

    def __init__(self, field: PrintableInput | PrintableTextArea) -> None:
        super().__init__()
        self.field: Any = field

    def compose(self) -> Any:
        yield self.field


@pytest.fixture(params=["prompt", "lines", "input"])
async def field(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if request.param == "prompt":
        async with prompting() as prompt:
            yield prompt.area
        return
    made = PrintableTextArea() if request.param == "lines" else PrintableInput()
    async with _Field(made).run_test():
        yield made


def written(field: Any, text: str) -> None:
    if isinstance(field, PrintableInput):
        field.value = text
        field.cursor_position = len(text)
    else:
        field.replace(text, (0, 0), field.document.end, maintain_selection_offset=False)
        field.move_cursor(field.document.end)


def text_of(field: Any) -> str:
    return field.value if isinstance(field, PrintableInput) else field.text


def column(field: Any) -> int:
    return field.cursor_position if isinstance(field, PrintableInput) else field.cursor_location[1]


def put(field: Any, place: int) -> None:
    if isinstance(field, PrintableInput):
        field.selection = Selection(place, place)
    else:
        field.move_cursor((0, place))


async def test_each_key_takes_one_character(field: Any) -> None:
    for seed in range(12):
        characters = drawn(Random(seed))
        text = "".join(characters)
        ends = [sum(map(len, characters[:count])) for count in range(len(characters) + 1)]
        written(field, text)
        for end in ends[-2::-1]:
            field.action_cursor_left()
            assert column(field) == end
        for end in ends[1:]:
            field.action_cursor_right()
            assert column(field) == end
        for count in range(len(characters) - 1, -1, -1):
            field.action_delete_left()
            assert text_of(field) == "".join(characters[:count])
        written(field, text)
        put(field, 0)
        for count in range(1, len(characters) + 1):
            field.action_delete_right()
            assert text_of(field) == "".join(characters[count:])


async def test_the_cursor_never_stands_within_a_character(field: Any) -> None:
    for seed in range(12):
        characters = drawn(Random(seed))
        written(field, "".join(characters))
        ends = {sum(map(len, characters[:count])) for count in range(len(characters) + 1)}
        for place in range(max(ends) + 1):
            put(field, place)
            assert column(field) in ends
        put(field, max(ends))
        field.action_cursor_left(select=True)
        field.action_delete_left()
        assert text_of(field) == "".join(characters[:-1])


async def test_what_arrives_in_pieces_is_typed_as_it_is(prompt: Prompting) -> None:
    """As a terminal or an input method sends an emoji: code point by code point."""
    for character in "a👩\u200d👧 e\u0301🇩🇪":
        prompt.area.insert(character)
    assert prompt.text == "a👩\u200d👧 e\u0301🇩🇪"
    prompt.area.action_delete_left()
    prompt.area.action_delete_left()
    assert prompt.text == "a👩\u200d👧 "
    prompt.area.action_undo()
    assert prompt.text == "a👩\u200d👧 e\u0301🇩🇪"


def test_places_are_those_of_unicode() -> None:
    random = Random(1)
    for _ in range(60):
        line = "".join(drawn(random)) * random.randint(1, 8)
        spans = [match.span() for match in regex.finditer(r"\X", line)]
        for place in range(len(line) + 1):
            around = [span for span in spans if span[0] < place < span[1]]
            assert character_at(line, place) == (around or [(place, place)])[0]


async def test_every_character_that_is_typed_is_kept(field: Any) -> None:
    """Also those that Textual takes for no text: they reach a field as keys, one by one."""
    text = "日本\u3000語 \u0645\u06cc\u200c\u062e 👩\u200d👧 1\u202f000\u00a0€ "
    text += "co\u00adop א\u200f\u2060b\ue000" + CHARACTERS[9]
    for one in text:
        await field._dispatch_message(Key(f"key_{ord(one)}", one))
    await field._dispatch_message(Key("ctrl+b", "\x02"))
    assert text_of(field) == text
