"""The two themes of the app; Textual's own get the hues of drafters too."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from textual.app import App
from textual.design import ColorSystem
from textual.theme import BUILTIN_THEMES, Theme

from app.tui.look.colour_depth import ColourDepth
from app.tui.look.hues import hue_variables

DARK, LIGHT = "specchat-dark", "specchat-light"


def _theme(
    name: str, *, dark: bool, background: str, raised: str, foreground: str, muted: str,
    rule: str, blue: str, green: str, orange: str, red: str,
) -> Theme:  # fmt: skip
    """A theme in greys, with one blue for focus. raised: background of questions."""
    return Theme(
        name=name,
        dark=dark,
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
        },
    )


_FULL = (
    _theme(
        DARK, dark=True, background="#14161B", raised="#1C1F26", foreground="#D5D9E2",
        muted="#9AA0AD", rule="#565C69", blue="#7AA2F7", green="#2BB58A", orange="#E8A33D",
        red="#F2777A",
    ),
    _theme(
        LIGHT, dark=False, background="#FBFBFA", raised="#F0F0EE", foreground="#1F232B",
        muted="#5A6072", rule="#A3A8B4", blue="#2456B8", green="#00704F", orange="#8F5200",
        red="#B3261E",
    ),
)  # fmt: skip

# Each is a colour of the standard palette, so that none is approximated.
_SIXTEEN = (
    _theme(
        DARK, dark=True, background="#000000", raised="#000000", foreground="#FFFFFF",
        muted="#AAAAAA", rule="#555555", blue="#5555FF", green="#00AA00", orange="#FFFF55",
        red="#FF5555",
    ),
    _theme(
        LIGHT, dark=False, background="#FFFFFF", raised="#FFFFFF", foreground="#000000",
        muted="#555555", rule="#AAAAAA", blue="#0000AA", green="#00AA00", orange="#AA5500",
        red="#AA0000",
    ),
)  # fmt: skip


def themes(depth: ColourDepth) -> Iterable[Theme]:
    """Every theme that can be chosen, with the hues of drafters."""
    for theme in _plain_themes(depth):
        yield replace(theme, variables={**hue_variables(theme, depth), **theme.variables})


def _plain_themes(depth: ColourDepth) -> Iterable[Theme]:
    """Every theme that can be chosen, without the hues."""
    own = _SIXTEEN if depth is ColourDepth.SIXTEEN else _FULL
    return (*own, *BUILTIN_THEMES.values())


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
        return super().to_color_system()


def register_themes(app: App[Any]) -> None:
    """Make the themes available, and use the dark one until another is chosen."""
    depth = ColourDepth.of(app)
    for theme in _plain_themes(depth):
        app.register_theme(_Unused(theme, depth))
    app.theme = DARK
