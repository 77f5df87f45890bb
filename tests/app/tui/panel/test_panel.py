"""The panel at the side and as a strip: its pages, its explanations, and what it repaints."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Static

from app.engine.metrics import Comparison, Standing
from app.settings.in_effect import Preferences
from app.tui.look import BREAKPOINTS, register_themes
from app.tui.panel.figures import start
from app.tui.panel.graph import SPEED, TERMS, Helpable, Scale, drafter_term, graph
from app.tui.panel.panel import Panel
from app.tui.store import Live, Second, Store
from decoding.planning.pausing import State
from decoding.telemetry import DrafterStatistics
from tests.app.tui.conftest import DRAFTED, MINUTE, live
from tests.fixtures.screen_text import screen_text
from tests.fixtures.small_app import compare_screen

SIZES = ((120, 36), (80, 24), (40, 20))

METRICS = replace(
    DRAFTED, decode_tokens_per_second=14.2, cached_prompt_tokens=740, ahead_tokens=700
)
PAUSED = Comparison(Standing.SLOWER, 0.92, 0.03, is_paused=True)
STATES: dict[str, Live] = {
    "idle": Live(),
    "answering": live(METRICS),
    "short": live(METRICS, Comparison(Standing.SHORT)),
    "even": live(METRICS, Comparison(Standing.EVEN, 1.0, 0.09)),
    "paused": live(replace(METRICS, state=State.PAUSED), PAUSED),
    "slower": live(METRICS, Comparison(Standing.SLOWER, 0.89, 0.03)),
    "lossy": live(replace(METRICS, lossy="lossy: ears 0.1")),
    "plain": live(
        replace(METRICS, drafted=0, accepted=0, by_drafter={}, accepted_lengths=()),
        Comparison(Standing.PLAIN),
    ),
}


class PanelApp(App[None]):
    """A chat screen of which only the panel is real."""

    AUTO_FOCUS = None
    pilot: Pilot[None]
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    CSS: ClassVar[str] = """
    #middle { height: 1fr; }
    .-wide #middle { layout: horizontal; }
    #chat { width: 1fr; height: 1fr; }
    #prompt { height: 3; border: round $primary; }
    """

    def __init__(self) -> None:
        super().__init__()
        register_themes(self)
        self.store = Store(Preferences(Path("settings.toml")))
        self.store.is_panel_shown = True
        self.panel = Panel(self.store)

    def compose(self) -> ComposeResult:
        yield Static("header")
        with Container(id="middle"):
            yield Static("chat", id="chat")
            yield self.panel
        yield Static("prompt", id="prompt")

    async def show(self, figures: Live) -> None:
        """Fill the panel."""
        self.store.live = figures
        await self.pilot.pause()


@pytest.fixture
def size() -> tuple[int, int]:
    return 120, 36


@pytest.fixture
async def empty(size: tuple[int, int]) -> AsyncIterator[PanelApp]:
    """Without figures."""
    app = PanelApp()
    async with app.run_test(size=size) as app.pilot:
        yield app


@pytest.fixture
async def app(empty: PanelApp) -> PanelApp:
    """With the figures of an answer."""
    await empty.show(live(METRICS))
    return empty


@pytest.mark.slow
@pytest.mark.parametrize("state", [*STATES, "details"])
@pytest.mark.parametrize("size", SIZES)
async def test_the_panel_in_every_state(
    empty: PanelApp, state: str, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    empty.store.shows_details = state == "details"
    await empty.show(STATES.get(state, live(METRICS)))
    compare_screen(empty, f"panel_{state}_{size[0]}x{size[1]}", pytestconfig)


async def test_it_shows_and_hides_and_follows_the_size_of_the_terminal(app: PanelApp) -> None:
    assert app.panel.region == Region(79, 1, 41, 32)
    await app.pilot.resize_terminal(109, 36)
    await app.pilot.pause()
    assert app.panel.region == Region(0, 27, 109, 6)
    await app.pilot.resize_terminal(40, 20)
    await app.pilot.pause()
    assert app.panel.region == Region(0, 10, 40, 7)
    app.store.is_panel_shown = False
    await app.pilot.pause()
    assert not app.panel.display


@pytest.mark.parametrize("size", [(10, 3), (1, 1), (300, 100)])
async def test_odd_sizes_and_figures_do_no_harm(app: PanelApp) -> None:
    nan, inf = float("nan"), float("inf")
    drafters = {
        "\x1b[31m\u202e日本語の長い名前": DrafterStatistics(1, 0, 0, 0.0),
        "a/b:c": METRICS.by_drafter["lookup"],
    }
    odd = replace(METRICS, by_drafter=drafters, verify_seconds=0.0, draft_seconds=0.0)
    odd = replace(odd, overhead_seconds=None, wall_tokens_per_second=None)
    odd = replace(odd, decode_tokens_per_second=inf)
    minute = (Second(nan), Second(inf, "lookup"), Second(-1.0), Second(1e12, "ngram"))
    for plain in (None, nan, 0.0, 1e-9, 1e15):
        await app.show(Live(odd, plain=plain, minute=minute))
        app.store.shows_details = not app.store.shows_details
        await app.pilot.pause()
        assert not {"\x1b", "\u202e"} & {*app.panel.text}


async def test_the_unit_of_speed_stands_once(app: PanelApp) -> None:
    assert screen_text(app).count("tok/s") == 1
    app.store.shows_details = True
    await app.pilot.pause()
    assert screen_text(app).count("tok/s") == 1


async def test_figures_stay_in_their_columns(app: PanelApp) -> None:
    await app.show(live(replace(METRICS, decode_tokens_per_second=114.0)))
    at = app.panel.text.index("tok/s")
    for rate in (9.9, 4.2, 99.0):
        await app.show(live(replace(METRICS, decode_tokens_per_second=rate)))
        assert app.panel.text.index("tok/s") == at


async def test_a_new_answer_without_figures_moves_nothing(app: PanelApp) -> None:
    rows = app.panel.text.split("\n")
    await app.show(replace(live(METRICS), metrics=None))
    waiting = app.panel.text.split("\n")
    assert waiting.index("this session  1.12× plain ± 0.03") == rows.index(
        "this session  1.12× plain ± 0.03"
    )
    assert waiting[4:7] == rows[4:7]


async def test_the_cursor_and_the_mouse_explain_figures(app: PanelApp) -> None:
    assert "lookup copies from" in app.panel.text
    app.panel.focus()
    await app.pilot.pause()
    assert isinstance(app.panel, Helpable)
    assert app.panel.help_text.startswith("speed:")
    await app.pilot.press("down", "tab")
    assert app.panel.help_text.startswith("drafted:")
    assert "drafted: the share of this answer" in app.panel.text
    await app.pilot.press("up")
    assert app.panel.help_text.startswith("gain:")
    await app.pilot.hover(app.panel, offset=(4, 11))
    assert app.panel.help_text.startswith("ngram continues")
    await app.pilot.press(*["down"] * 9)
    assert not app.panel.has_focus or app.panel.help_text


async def test_equal_figures_paint_nothing_and_others_only_their_lines(
    app: PanelApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[int] = []
    monkeypatch.setattr(app.panel, "refresh_line", painted.append)
    await app.show(live(METRICS))
    assert painted == []
    await app.show(replace(live(METRICS), answers=25))
    assert [app.panel.text.split("\n")[y].strip() for y in painted] == ["in 25 answers"]


async def test_without_colours_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = PanelApp()
    async with app.run_test(size=(120, 36)) as pilot:
        app.store.live = replace(live(METRICS), minute=MINUTE)
        await pilot.pause()
        for y in range(app.panel.size.height):
            strip = app.panel.render_lines(Region(0, y, 40, 1))[0]
            for segment in strip:
                colour = segment.style.color if segment.style else None
                triplet = colour.triplet if colour else None
                assert triplet is None or triplet.red == triplet.green == triplet.blue


async def test_the_drafters_hue_is_the_one_of_the_theme(app: PanelApp) -> None:
    row = app.panel.text.split("\n").index("■ lookup     ━━━━━━━━──       62 of 74")
    shown = app.panel.render_line(row)
    for sign in ("■", "━"):
        style = next(one.style for one in shown if sign in one.text)
        assert style is not None
        assert style.color is not None
        assert style.color.name == app.theme_variables["drafter-lookup"].lower()


def test_what_is_ready_is_all_that_is_not_computed_again() -> None:
    """As in the prompt's frame, and whoever read it: a stopped answer to the same question too."""
    metrics = replace(METRICS, cached_prompt_tokens=1203, ahead_tokens=288, ttft_seconds=0.4)
    assert start(metrics).content.plain == "first token 0.4 s, 1,203 tokens ready"


def drawn(rates: list[float], plain: float | None = 10.0, height: int = 3) -> list[str]:
    """The cells that are not blank, and the labels."""
    minute = tuple(Second(rate, "lookup") for rate in rates)
    return [line.content.plain.strip() for line in graph(minute, plain, height)]


def test_the_scale_begins_at_0_and_a_line_stands_at_plain_speed() -> None:
    line = "⠉" * 26
    assert drawn([12.5, 12.5, 10.0, 5.0]) == ["⣤   15", f"{line}⣿⡏  10 plain", "⣿⣿   0"]


@pytest.mark.parametrize(
    ("peak", "row", "sign"), [(20.0, 2, "⠉"), (50.0, 2, "⠤"), (100.0, 2, "⣀"), (900.0, 2, "⣀")]
)
def test_the_line_of_plain_speed_and_its_label_move_with_the_scale(
    peak: float, row: int, sign: str
) -> None:
    rows = drawn([peak, peak])
    assert [number for number, one in enumerate(rows) if one.endswith("10 plain")] == [row]
    assert rows[row].startswith(27 * sign)


@pytest.mark.parametrize(("peak", "top"), [(0.0, 15.0), (15.0, 15.0), (16.0, 30.0), (70.0, 120.0)])
def test_the_scale_doubles_until_the_peak_fits(peak: float, top: float) -> None:
    assert Scale.of((Second(peak),), 10.0).top == top


def test_without_a_plain_rate_all_is_grey() -> None:
    lines = graph((Second(7.0, "lookup"), Second(8.0, "ngram")), None)
    assert {str(span.style) for line in lines for span in line.content.spans} == {"$text-muted"}
    assert drawn([7.0, 8.0], None)[0] == "⢠  10"


def test_what_is_above_plain_has_the_hue_of_its_drafter() -> None:
    top, middle, _ = graph((Second(15.0, "ngram"), Second(15.0, "ngram")), 10.0)
    assert "ngram" in str(top.content.spans[1].style)
    assert str(middle.content.spans[0].style) == "$text-muted"


def test_rates_that_are_no_number_are_blank() -> None:
    assert drawn([float("nan"), float("inf")])[0] == "15"


def test_large_rates_and_one_row() -> None:
    assert drawn([25_000.0, 25_000.0], None, 1) == ["⣤ 50k"]
    assert drawn([], 10.0) == ["", "", ""]


def test_the_linux_console_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    graph.cache_clear()
    assert drawn([12.5, 12.5])[0] == "▄  15"
    graph.cache_clear()


def test_sentences() -> None:
    assert SPEED.sentence.startswith("speed: tokens a second")
    assert drafter_term("lookup").sentence == (
        "lookup copies from what was said in this chat. It is free."
    )
    assert drafter_term("cascade/ngram:3").name == "ngram"
    assert drafter_term("jacobi").text == drafter_term("lookahead:w=5").text
    assert drafter_term("prediction").sentence == (
        "prediction copies from the text that was predicted for this answer. It is free."
    )
    assert drafter_term("smollm2\x1b").sentence == "smollm2␛: a smaller model that guesses ahead."


def test_each_term_is_explained_once() -> None:
    assert len({term.name for term in TERMS}) == len(TERMS)
