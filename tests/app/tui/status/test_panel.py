"""Where the live panel is: beside the conversation, under it, or away; and what it shows."""

from dataclasses import replace

from textual.app import App, ComposeResult
from textual.content import Content

from app.engine.reply_metrics import DrafterMetrics, ReplyMetrics
from app.tui.status.figure_text import FigureText
from app.tui.status.histogram import histogram
from app.tui.status.panel import Panel
from decoding.shape import Shape
from tests.app.tui.conftest import Chat, Chatting
from tests.app.tui.test_snapshots import LIVE
from tests.fixtures.scripted import ScriptedModel


async def resized(chat: Chat, width: int, height: int = 24) -> Panel:
    await chat.pilot.resize_terminal(width, height)
    await chat.until(lambda: chat.screen.size.width == width)
    await chat.pilot.pause()
    return chat.screen.query_one(Panel)


async def test_auto_follows_the_terminal_until_somebody_decides(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (80, 24)) as chat:
        assert not chat.screen.query_one(Panel).display
        assert (await resized(chat, 110)).display
        assert not (await resized(chat, 109)).display
        await chat.pilot.press("f2")
        await chat.until(lambda: chat.screen.query_one(Panel).display)
        assert (await resized(chat, 60)).display
        await chat.pilot.press("f2")
        await chat.until(lambda: not chat.screen.query_one(Panel).display)
        assert not (await resized(chat, 200)).display


async def test_a_narrow_terminal_has_it_under_the_conversation(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (40, 24)) as chat:
        await chat.ask("hello")
        await chat.pilot.press("f2")
        panel, transcript = chat.screen.query_one(Panel), chat.view.transcript
        await chat.until(lambda: panel.size.height > 0)
        await chat.pilot.pause()
        assert transcript.region.width == 40
        assert transcript.region.height >= panel.region.height
        assert panel.region.y == transcript.region.bottom
        await resized(chat, 80)
        assert panel.region.x == transcript.region.right
        assert panel.region.height == transcript.region.height


class Alone(App[None]):
    """A panel that nothing but a test writes into."""

    def compose(self) -> ComposeResult:
        yield Panel()


async def shown(metrics: ReplyMetrics, now_rate: float | None = 70.0) -> list[str]:
    """The lines of figures, those of the speed first."""
    app = Alone()
    async with app.run_test(size=(40, 80)):
        panel = app.query_one(Panel)
        panel.show(metrics, "drafting on", now_rate)
        lines: list[str] = []
        for text in panel.query(FigureText):
            assert isinstance(text.content, Content)
            lines += text.content.plain.split("\n")
    return lines


async def test_the_shape_is_told_while_an_answer_is_at_work() -> None:
    assert "shape: tree of 8 in 4 branches" in await shown(LIVE)
    assert "shape: line of 3" in await shown(replace(LIVE, shape="line of 3"))
    ended = await shown(LIVE, None)
    assert not any(line.startswith("shape") for line in ended)
    assert "steps: line 50 %, tree 30 %, none 20 %" in ended


async def test_without_a_draft_there_is_no_histogram() -> None:
    assert "accepted length of 48 drafts, %" in await shown(LIVE)
    plain = replace(LIVE, accepted_lengths=(), steps_by_shape={Shape.NONE: 9})
    assert not any("accepted length" in line for line in await shown(plain))


async def test_a_long_name_of_a_drafter_is_there_to_its_end() -> None:
    name = "cascade(lookup,smollm2-135m-instruct-q4_0-requantized)"
    metrics = replace(LIVE, by_drafter={name: DrafterMetrics(4, 9, 7, 0.1)})
    lines = await shown(metrics)
    assert lines[lines.index(name) + 1].split() == ["7", "of", "9"]


def test_a_histogram_has_a_column_for_each_count() -> None:
    assert histogram([1, 2, 4, 0, 1]) == [
        "   0   1   2   3   4",
        "   ▂   ▄   █       ▂",
        "  12  25  50   0  12",
    ]


def test_the_last_column_of_a_histogram_is_all_that_is_more() -> None:
    names, blocks, shares = histogram([0, 0, 0, 0, 0, 0, 900, 50, 40, 10])
    assert names.split() == ["0", "1", "2", "3", "4", "5", "6", "7+"]
    assert (blocks.split(), shares.split()[-2:]) == (["█", "▁"], ["90", "10"])
    assert histogram([1] * 8)[0].split()[-1] == "7"


def test_what_is_rare_is_neither_blank_nor_0() -> None:
    _, blocks, shares = histogram([1000, 0, 1])
    assert blocks == "   █       ▁"
    assert shares.split() == ["100", "0", "<1"]


async def test_a_lossy_answer_is_told_beside_its_speed() -> None:
    assert "lossy: ears 0.1" in await shown(replace(LIVE, lossy="lossy: ears 0.1"))
    assert not any("lossy" in line for line in await shown(LIVE))
