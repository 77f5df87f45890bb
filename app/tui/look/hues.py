"""Hues of drafters: the same one on every screen, and nothing else on the screen has one.

Each kind has three theme variables: `drafter-KIND`, a colour; `drafted-KIND`, the style of text
that it supplied, which is more than a colour where the terminal has few; `fading-KIND`, the style
of that text a second later.
"""

from collections.abc import Mapping
from enum import StrEnum

from textual.color import Color
from textual.theme import Theme

from app.tui.look.colour_depth import ColourDepth
from app.tui.look.contrast import legible

_KIND_OF_FAMILY = {
    "lookup": "lookup",
    "prediction": "lookup",
    "grammar": "lookup",
    "retrieval": "retrieval",
    "ngram": "ngram",
    "lookahead": "lookahead",
    "jacobi": "lookahead",
}


class Kind(StrEnum):
    """Kinds of drafters that have a hue of their own."""

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


def kind_of(drafter: str) -> Kind:
    """The kind of a drafter, from its name; any model, and the target itself, is a model.

    A part of a composed drafter, such as "cascade/lookup", has the kind of its last part.
    """
    family = drafter.rsplit("/", 1)[-1].partition(":")[0]
    return Kind(_KIND_OF_FAMILY.get(family, Kind.MODEL))


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
    """Variables of the drafters' hues for a theme."""
    if depth is ColourDepth.NONE:
        plain = dict.fromkeys(Kind, _foreground(theme))
        return _variables(plain, _ATTRIBUTES, _ATTRIBUTES)
    if theme.ansi:
        return _with_underline(
            theme, _NAMED, {kind: f"{name} dim" for kind, name in _NAMED.items()}
        )
    if depth is ColourDepth.SIXTEEN:
        return _with_underline(theme, _BRIGHT if theme.dark else _NORMAL, _NORMAL)
    backgrounds = _backgrounds(theme)
    colours = {
        kind: legible(Color.parse(colour), backgrounds, dark=theme.dark)
        for kind, colour in (_ON_DARK if theme.dark else _ON_LIGHT).items()
    }
    foreground = Color.parse(_foreground(theme))
    full = {kind: colour.hex for kind, colour in colours.items()}
    half = {kind: colour.blend(foreground, 0.5).hex for kind, colour in colours.items()}
    return _with_underline(theme, full, half)


def _with_underline(
    theme: Theme, full: Mapping[Kind, str], half: Mapping[Kind, str]
) -> dict[str, str]:
    """Variables from the colours of all kinds but lookahead, which has an underline."""
    underlined = {Kind.LOOKAHEAD: "underline"}
    return _variables(
        {**full, Kind.LOOKAHEAD: _foreground(theme)},
        {**full, **underlined},
        {**half, **underlined},
    )


def _variables(
    colours: Mapping[Kind, str], styles: Mapping[Kind, str], faded: Mapping[Kind, str]
) -> dict[str, str]:
    return {
        f"{name}-{kind}": values[kind]
        for name, values in (("drafter", colours), ("drafted", styles), ("fading", faded))
        for kind in Kind
    }


def _foreground(theme: Theme) -> str:
    return theme.to_color_system().generate()["foreground"]


def _backgrounds(theme: Theme) -> list[Color]:
    """What text may stand on."""
    colours = theme.to_color_system().generate()
    return [Color.parse(colours[name]) for name in ("background", "surface", "panel")]
