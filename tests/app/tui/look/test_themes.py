"""Hues that everybody can read and tell apart."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content
from textual.theme import Theme
from textual.widgets import Static

from app.settings.in_effect import Preferences
from app.tui.keymap import THEMES, usable_preferences
from app.tui.look import (
    DARK,
    LEGIBLE,
    LIGHT,
    ColourDepth,
    Kind,
    contrast,
    hue_variables,
    kind_of,
    register_themes,
    themes,
)
from app.tui.panel.figures import legend
from tests.fixtures.screen_text import screen_text

ALL = {
    theme.name: replace(
        theme, variables={**hue_variables(theme, ColourDepth.FULL), **theme.variables}
    )
    for theme in themes(ColourDepth.FULL)
}
IN_RGB = [name for name, theme in ALL.items() if not theme.ansi]
WITH_HUE = [kind for kind in Kind if kind is not Kind.LOOKAHEAD]

# Machado, Oliveira and Fernandes 2009, severity 1, in linear RGB.
SIGHT = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def variables(theme: Theme) -> dict[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def backgrounds(theme: Theme) -> list[Color]:
    values = variables(theme)
    return [Color.parse(values[name]) for name in ("background", "surface", "panel")]


@pytest.mark.parametrize("name", IN_RGB)
def test_every_hue_is_legible_on_every_background(name: str) -> None:
    values = variables(ALL[name])
    for kind in WITH_HUE:
        for background in backgrounds(ALL[name]):
            assert contrast(Color.parse(values[f"drafter-{kind}"]), background) >= LEGIBLE
            if name in (DARK, LIGHT):
                assert contrast(Color.parse(values[f"fading-{kind}"]), background) >= LEGIBLE


@pytest.mark.parametrize("name", IN_RGB)
def test_other_text_is_legible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the themes of others, some of which have warnings at a contrast of 1.1."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = App[None]()
    register_themes(app)
    app.theme = name
    colours = app.get_css_variables()
    for variable in (
        *("foreground", "text-muted", "text-disabled"),
        *("text-error", "text-warning", "text-success", "text-primary"),
    ):
        colour = Color.parse(colours[variable])
        worst = min(contrast(colour, background) for background in backgrounds(ALL[name]))
        assert worst >= LEGIBLE, variable


def painted(colour: str) -> Color:
    """What a terminal of 256 colours shows."""
    return Color(*RichColor.parse(colour).downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def apart(one: Color, other: Color) -> float:
    pair = (lab(colour, "full") for colour in (one, other))
    return sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5


@pytest.mark.parametrize("theme", list(themes(ColourDepth.PALETTE))[:2], ids=lambda one: one.name)
def test_code_stands_out_in_a_terminal_of_256_colours(theme: Theme) -> None:
    """Its block is raised as in full colour, and its hues are far from the text's."""
    shown = {
        name: painted(colour)
        for name, colour in variables(theme).items()
        if len(colour) == 7 and colour[0] == "#"
    }
    grounds = shown["background"], shown["panel"]
    darker = sorted(grounds, key=lambda colour: colour.brightness)
    assert (darker[0] is shown["background"]) == theme.dark
    assert contrast(*grounds) > 1.1
    for name in ("foreground", "text-muted", "text-accent", "text-warning", "text-error"):
        assert all(contrast(shown[name], ground) >= LEGIBLE for ground in grounds), name
    for name in ("text-accent", "text-warning", "text-error"):
        assert shown[name] == Color.parse(variables(theme)[name])
        assert apart(shown[name], shown["foreground"]) > 50, name


def lab(colour: Color, sight: str) -> tuple[float, float, float]:
    """CIELAB of a colour as someone sees it."""
    channels = [value / 255 for value in colour.rgb]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    r, g, b = (
        min(1.0, max(0.0, sum(factor * value for factor, value in zip(row, linear, strict=True))))
        for row in SIGHT[sight]
    )
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("name", [DARK, LIGHT])
def test_hues_can_be_told_apart(name: str, sight: str) -> None:
    """A difference of 10 in CIELAB is plain to see side by side."""
    values = variables(ALL[name])
    seen = {kind: lab(Color.parse(values[f"drafter-{kind}"]), sight) for kind in WITH_HUE}
    for one, other in combinations(WITH_HUE, 2):
        difference = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert difference >= 10, (one, other, difference)


def test_without_colours_each_kind_has_an_attribute_of_its_own() -> None:
    values = hue_variables(ALL[DARK], ColourDepth.NONE)
    assert [values[f"drafted-{kind}"] for kind in Kind] == [
        "underline", "italic", "bold", "reverse", "bold underline",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("drafter", "kind"),
    [
        ("lookup", Kind.LOOKUP),
        ("cascade/ngram:4", Kind.NGRAM),
        ("jacobi:w=5", Kind.LOOKAHEAD),
        ("self", Kind.MODEL),
        ("qwen3-0.6b", Kind.MODEL),
    ],
)
def test_kind_of_a_drafter(drafter: str, kind: Kind) -> None:
    assert kind_of(drafter) is kind


class Styled(App[None]):
    """Text in every hue."""

    def __init__(self) -> None:
        super().__init__()
        register_themes(self)

    def compose(self) -> ComposeResult:
        for kind in Kind:
            yield Static(Content.styled(kind, kind.hue))


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm-16color", "xterm-256color"])
async def test_every_theme_can_be_used(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM", raising=False)
    app = Styled()
    async with app.run_test(size=(40, 10)) as pilot:
        assert app.theme == DARK
        for name in THEMES:
            app.theme = name
            await pilot.pause()
            assert "lookup" in screen_text(app)


def test_an_unknown_theme_falls_back_and_says_so() -> None:
    wanted = Preferences(Path("settings.toml"), theme="specchat-ligth")
    preferences, (fault,) = usable_preferences(wanted)
    assert preferences.theme == DARK
    assert "specchat-light" in str(fault)


def test_the_legend_of_the_colours() -> None:
    assert [line.content.plain for line in legend()] == [
        "Drafts are guesses that the model",
        "checks. Text that was drafted is",
        "coloured while it is new:",
        "",
        "■ lookup     copies from this chat",
        "■ retrieval  copies from other chats",
        "■ ngram      common phrases",
        "■ a model    a smaller model guesses",
    ]
