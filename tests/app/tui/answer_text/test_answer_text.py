"""An answer's text: what drafters supplied is coloured while it is new."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from app.tui.chat import answer as answer_text
from app.tui.chat.colours import Alignment
from tests.app.tui.answer_text.showing import ShowingAnswer
from tests.fixtures.clock import Clock

MODEL, BONUS, CORRECTED = "model", "bonus", "corrected"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which colours age, in a terminal with many colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    clock = Clock()
    monkeypatch.setattr(answer_text, "time", SimpleNamespace(monotonic=clock, thread_time=clock))
    return clock


@pytest.fixture
async def app(clock: Clock) -> AsyncIterator[ShowingAnswer]:
    app = ShowingAnswer()
    async with app.run_test() as app.pilot:
        yield app


async def test_text_has_the_hue_of_its_drafter_for_a_second_and_half_of_it_for_another(
    app: ShowingAnswer, clock: Clock
) -> None:
    app.grow(("In ", MODEL), ("May the", "lookup"), (" sun", BONUS), (" is", "ngram:8"))
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "May the"
    assert app.painted("drafter-ngram") == "is"
    clock.now += 1.1
    app.grow((" out", "small.gguf"), (".", CORRECTED))
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == ""
    assert app.painted("fading-lookup") == "May the"
    assert app.painted("drafter-model") == "out"
    clock.now += 2.0
    app.grow()
    await app.pilot.pause()
    assert app.painted("fading-lookup") + app.painted("drafter-model") == ""
    assert app.lines == ["In May the sun is out.█"]


async def test_colours_fade_after_the_end_without_further_text(
    app: ShowingAnswer, clock: Clock
) -> None:
    app.grow(("copied", "lookup"))
    app.answer.follow()
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "copied"
    assert app.lines == ["copied"]
    clock.now += 3.0
    while app.painted("drafter-lookup"):
        await app.pilot.pause(0.1)
    assert app.painted("fading-lookup") == ""


async def test_code_has_colours_once_those_of_drafters_have_faded(
    app: ShowingAnswer, clock: Clock
) -> None:
    app.grow(("```python\nx = ", MODEL), ("'copied'", "lookup"), ("\ny = 'own'\n```", MODEL))
    app.answer.follow()
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "'copied'"
    assert app.painted("text-warning") == ""
    clock.now += 3.0
    while not app.painted("text-warning"):
        await app.pilot.pause(0.1)
    assert app.painted("text-warning") == "'copied''own'"
    assert app.painted("drafter-lookup") == ""
    app.store.keeps_colours = True
    await app.pilot.pause()
    assert (app.painted("drafter-lookup"), app.painted("text-warning")) == ("'copied'", "")


async def test_kept_colours_stay_and_come_back(app: ShowingAnswer, clock: Clock) -> None:
    app.grow(("a **", MODEL), ("copied", "lookup"), ("** word", MODEL))
    app.answer.follow()
    clock.now += 3.0
    app.store.keeps_colours = True
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "copied"
    app.store.keeps_colours = False
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == ""


async def test_colours_that_are_kept_no_longer_fade_as_soon_as_others(
    app: ShowingAnswer, clock: Clock
) -> None:
    app.store.keeps_colours = True
    app.grow(("copied", "lookup"))
    app.answer.follow()
    app.store.keeps_colours = False
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "copied"  # it is new
    clock.now += 3.0
    async with asyncio.timeout(60):
        while app.painted("drafter-lookup"):
            await app.pilot.pause(0.1)


async def test_without_animation_colours_stay_until_the_answer_ends(
    app: ShowingAnswer, clock: Clock
) -> None:
    app.animation_level = "none"
    app.grow(("copied", "lookup"))
    clock.now += 9.0
    app.grow((" on", MODEL))
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == "copied"
    app.answer.follow()
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == ""


@pytest.mark.parametrize(
    ("before", "drafted", "after"),
    [
        ("```go\nfunc ", "main()", " {\n\tx\n}\n```\n"),
        ("1. one\n2. ", "two", " three\n"),
        ("- one\n  - ", "two", " three\n"),
        ("- one\n  ```\n  x\n  ```\n- ", "two", " three\n"),
        ("| a | b |\n| --- | --- |\n| x | ", "two", " |\n"),
        ("# Head ", "two", "\n\nText\n"),
        ("> quoted ", "two", " text\n"),
        ("[a](http://x.y/two) ", "two", " and `two`\n"),
        ("<think>two</think>\n\nthe ", "two", " words\n"),
        ("a &amp; b ", "two", "\n"),
    ],
)
@pytest.mark.usefixtures("clock")
async def test_colours_reach_into_every_kind_of_text(
    app: ShowingAnswer, before: str, drafted: str, after: str
) -> None:
    app.grow((before, MODEL), (drafted, "lookup"), (after, MODEL))
    await app.pilot.pause()
    assert app.painted("drafter-lookup") == drafted


async def test_without_colours_drafted_text_is_underlined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = ShowingAnswer()
    async with app.run_test() as pilot:
        app.grow(("In ", MODEL), ("May", "lookup"))
        await pilot.pause()
        underlined = [s.text for s in app.segments() if s.style is not None and s.style.underline]
        assert underlined == ["May"]


async def test_what_turns_out_to_be_thinking_leaves_the_answer(app: ShowingAnswer) -> None:
    app.grow(("Let me think.", MODEL))
    app.grow(("</think>\n\nFour.", MODEL))
    app.answer.follow()
    await app.pilot.pause()
    assert "Four." in app.lines
    assert "Let me think." not in app.lines


async def test_an_answer_that_ends_in_a_number_is_shown_whole(app: ShowingAnswer) -> None:
    app.grow(("The answer:\n\n", MODEL), ("42", MODEL))
    app.answer.follow()
    await app.pilot.pause()
    assert app.lines == ["The answer:", "", "42"]


async def test_a_saved_answer_is_continued() -> None:
    app = ShowingAnswer("One, two,")
    async with app.run_test() as pilot:
        await pilot.pause()
        app.grow((" three.", MODEL))
        app.answer.follow()
        await pilot.pause()
        assert app.lines == ["One, two, three."]


async def test_links_defined_below_their_use_work_once_the_answer_is_done(
    app: ShowingAnswer,
) -> None:
    app.grow(("See [this].\n\n", MODEL), ("[this]: http://x.y\n", "lookup"))
    app.answer.follow()
    await app.pilot.pause()
    assert app.lines == ["See this."]


def test_text_that_is_not_in_its_source_is_not_aligned() -> None:
    alignment = Alignment("one *two* three")
    assert [match.source for match in alignment.follow("one two")] == [0, 5]
    assert list(alignment.follow("four")) == []
    assert alignment.is_lost


def test_what_a_model_writes_cannot_stop_the_walk() -> None:
    alignment = Alignment("[a" + "](" * 95 + "word")
    assert len(list(alignment.follow("a word"))) == 2
