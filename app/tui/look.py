"""The look of the app: themes, breakpoints, and the hue of each drafter."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from textual.app import App
from textual.color import BLACK, WHITE, Color
from textual.design import ColorSystem
from textual.theme import BUILTIN_THEMES, Theme

BREAKPOINTS = [(0, "-narrow"), (80, "-normal"), (110, "-wide")]
"""For Textual: the fewest columns of a layout, and its class on every screen."""

HEIGHTS = [(0, "-short"), (8, "-low"), (20, "-tall")]
"""The fewest rows of a layout, and its class; the prompt has no frame where it is short."""


class ColourDepth(StrEnum):
    """Classes of terminals by their colours."""

    NONE = "none"
    """No colours, or none wanted (NO_COLOR)."""
    SIXTEEN = "16"
    PALETTE = "256"
    FULL = "full"

    @classmethod
    def of(cls, app: App[Any]) -> "ColourDepth":
        """The depth that Textual paints an app with: from TERM, COLORTERM and NO_COLOR."""
        if app.no_color:
            return cls.NONE
        few = {"standard": cls.SIXTEEN, "256": cls.PALETTE}
        return few.get(app.console.color_system or "", cls.FULL)


LEGIBLE = 4.5
"""Least contrast of text on its background."""


def contrast(colour: Color, background: Color) -> float:
    """Contrast ratio of two opaque colours, from 1 to 21."""
    light, dark = sorted((_luminance(colour), _luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def legible(colour: Color, backgrounds: list[Color], *, dark: bool) -> Color:
    """The colour, moved towards white (dark theme) or black until it is legible everywhere."""
    end = WHITE if dark else BLACK
    for step in range(21):
        moved = colour.blend(end, step / 20)
        if all(contrast(moved, background) >= LEGIBLE for background in backgrounds):
            return moved
    return end


def _luminance(colour: Color) -> float:
    red, green, blue = (_linear(channel / 255) for channel in colour.rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


# Hues of drafters: the same one on every screen, and nothing else on the screen has one.
#
# Each kind has three theme variables: `drafter-KIND`, a colour; `drafted-KIND`, the style of text
# that it supplied, which is more than a colour where the terminal has few; `fading-KIND`, the style
# of that text a second later.


class Kind(StrEnum):
    LOOKUP = "lookup"
    RETRIEVAL = "retrieval"
    NGRAM = "ngram"
    MODEL = "model"
    LOOKAHEAD = "lookahead"

    @property
    def hue(self) -> str:
        """Style of what belongs to the kind: its colour, an attribute where there are none."""
        return f"$drafted-{self}"

    @property
    def fading(self) -> str:
        """Style of text that the kind supplied a second ago."""
        return f"$fading-{self}"


def family_of(drafter: str) -> str:
    """A drafter's name without its recipe; of a part, as "cascade/lookup", the name of the part."""
    return drafter.rsplit("/", 1)[-1].partition(":")[0]


def kind_of(drafter: str) -> Kind:
    """The kind of a drafter, from its name; any model, and the target itself, is a model."""
    family = family_of(drafter)
    if family in ("prediction", "documents", "grammar"):
        return Kind.LOOKUP
    if family == "jacobi":
        return Kind.LOOKAHEAD
    return Kind(family) if family in [*Kind] else Kind.MODEL


# After Okabe and Ito, moved as far as 4.5:1 on the two backgrounds needs. Lookahead has no hue.
_ON_DARK = {
    Kind.LOOKUP: "#2BB58A",
    Kind.RETRIEVAL: "#D68FB8",
    Kind.NGRAM: "#E5D83A",
    Kind.MODEL: "#56B4E9",
}
_ON_LIGHT = {
    Kind.LOOKUP: "#00704F",
    Kind.RETRIEVAL: "#9C3F75",
    Kind.NGRAM: "#6E6400",
    Kind.MODEL: "#00629B",
}
_NAMED = {
    Kind.LOOKUP: "ansi_green",
    Kind.RETRIEVAL: "ansi_magenta",
    Kind.NGRAM: "ansi_yellow",
    Kind.MODEL: "ansi_cyan",
}
# Colours of the standard palette, so that none is approximated: those of _NAMED.
_BRIGHT = dict(zip(_NAMED, ("#55FF55", "#FF55FF", "#FFFF55", "#55FFFF"), strict=True))
_NORMAL = dict(zip(_NAMED, ("#00AA00", "#AA00AA", "#AA5500", "#00AAAA"), strict=True))
_ATTRIBUTES = {
    Kind.LOOKUP: "underline",
    Kind.RETRIEVAL: "italic",
    Kind.NGRAM: "bold",
    Kind.MODEL: "reverse",
    Kind.LOOKAHEAD: "bold underline",
}


def hue_variables(theme: Theme, depth: ColourDepth) -> dict[str, str]:
    foreground = theme.to_color_system().generate()["foreground"]
    colours = dict.fromkeys(Kind, foreground)
    full = half = _ATTRIBUTES
    if depth is not ColourDepth.NONE:
        full, half = _hues(theme, depth, Color.parse(foreground))
        colours |= full
        full, half = ({**styles, Kind.LOOKAHEAD: "underline"} for styles in (full, half))
    return {
        f"{name}-{kind}": values[kind]
        for name, values in (("drafter", colours), ("drafted", full), ("fading", half))
        for kind in Kind
    }


def _hues(
    theme: Theme, depth: ColourDepth, foreground: Color
) -> tuple[Mapping[Kind, str], Mapping[Kind, str]]:
    """Colours of all kinds but lookahead: of new text, and a second later."""
    if theme.ansi:
        return _NAMED, {kind: f"{name} dim" for kind, name in _NAMED.items()}
    if depth is ColourDepth.SIXTEEN:
        return _BRIGHT if theme.dark else _NORMAL, _NORMAL
    backgrounds = _backgrounds(theme)
    colours = {
        kind: legible(Color.parse(colour), backgrounds, dark=theme.dark)
        for kind, colour in (_ON_DARK if theme.dark else _ON_LIGHT).items()
    }
    half = {kind: colour.blend(foreground, 0.5).hex for kind, colour in colours.items()}
    return {kind: colour.hex for kind, colour in colours.items()}, half


def _backgrounds(theme: Theme) -> list[Color]:
    """What text may stand on."""
    colours = theme.to_color_system().generate()
    return [Color.parse(colours[name]) for name in ("background", "surface", "panel")]


DARK, LIGHT = "specchat-dark", "specchat-light"


_TRACK = "background", "background-hover", "background-active", "corner-color"


def _theme(name: str, colours: str) -> Theme:
    background, raised, foreground, muted, rule, blue, green, orange, red = colours.split()
    return Theme(
        name=name,
        dark=name == DARK,
        primary=blue,
        secondary=muted,
        accent=blue,
        foreground=foreground,
        background=background,
        surface=background,
        panel=raised,
        boost=raised,
        success=green,
        warning=orange,
        error=red,
        variables={
            "text-muted": muted,
            "text-disabled": muted,
            "text-primary": blue,
            "text-secondary": muted,
            "text-accent": blue,
            "text-success": green,
            "text-warning": orange,
            "text-error": red,
            "border": blue,
            "border-blurred": rule,
            "footer-background": background,
            "scrollbar": rule,
            "scrollbar-hover": muted,
            "scrollbar-active": blue,
            **dict.fromkeys((f"scrollbar-{part}" for part in _TRACK), background),
        },
    )


# In order: background, raised, foreground, muted, rule, blue, green, orange, red.
_FULL = (
    _theme(DARK, "#14161B #1C1F26 #D5D9E2 #9AA0AD #565C69 #7AA2F7 #2BB58A #E8A33D #F2777A"),
    _theme(LIGHT, "#FBFBFA #F0F0EE #1F232B #5A6072 #A3A8B4 #2456B8 #00704F #8F5200 #B3261E"),
)
# Colours of the palette of 256: a dark grey with a hue would be painted black.
_PALETTE = (
    _theme(DARK, "#121212 #262626 #DADADA #A8A8A8 #585858 #00AFFF #00D787 #FFAF00 #FF5F5F"),
    _theme(LIGHT, "#FFFFFF #EEEEEE #1C1C1C #5F5F5F #A8A8A8 #005FAF #005F5F #875F00 #AF0000"),
)
_SIXTEEN = (
    _theme(DARK, "#000000 #000000 #FFFFFF #AAAAAA #555555 #5555FF #00AA00 #FFFF55 #FF5555"),
    _theme(LIGHT, "#FFFFFF #FFFFFF #000000 #555555 #AAAAAA #0000AA #00AA00 #AA5500 #AA0000"),
)


def themes(depth: ColourDepth) -> Iterable[Theme]:
    own = {ColourDepth.SIXTEEN: _SIXTEEN, ColourDepth.PALETTE: _PALETTE}
    return (*own.get(depth, _FULL), *BUILTIN_THEMES.values())


_TEXTS = "foreground", "text-primary", "text-success", "text-warning", "text-error"


def legible_texts(theme: Theme) -> dict[str, str]:
    """The colours of all text but drafted text; themes made elsewhere have some that are not."""
    colours, backgrounds = theme.to_color_system().generate(), _backgrounds(theme)
    muted = backgrounds[0].blend(Color.parse(colours["foreground"]), 0.65)
    wanted = {name: Color.parse(colours[name]) for name in _TEXTS}
    wanted |= dict.fromkeys(("text-muted", "text-disabled"), muted)
    return {
        name: legible(colour, backgrounds, dark=theme.dark).hex for name, colour in wanted.items()
    }


class _Unused(Theme):
    """A theme without the hues of drafters until its colours are asked for.

    To compute those of all themes would delay the first paint.
    """

    def __init__(self, theme: Theme, depth: ColourDepth) -> None:
        super().__init__(**vars(theme))
        self._depth: ColourDepth | None = depth

    def to_color_system(self) -> ColorSystem:
        if self._depth is not None:
            depth, self._depth = self._depth, None
            self.variables = {**hue_variables(self, depth), **self.variables}
            if depth is ColourDepth.FULL and not self.ansi and self.name not in (DARK, LIGHT):
                self.variables |= legible_texts(self)
        return super().to_color_system()


def register_themes(app: App[Any]) -> None:
    """Make the themes available, and use the dark one until another is chosen."""
    depth = ColourDepth.of(app)
    for theme in themes(depth):
        app.register_theme(_Unused(theme, depth))
    app.theme = DARK
