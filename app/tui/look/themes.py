"""The two themes of the app."""

from typing import Any

from textual.app import App
from textual.theme import Theme

DARK, LIGHT = "specchat-dark", "specchat-light"

_THEMES = (
    Theme(
        name=DARK,
        dark=True,
        primary="#7AA2F7",
        secondary="#9AA5CE",
        accent="#7AA2F7",
        foreground="#D5D9E2",
        background="#14161B",
        surface="#14161B",
        panel="#1C1F26",
        boost="#1C1F26",
        success="#2BB58A",
        warning="#E8A33D",
        error="#F2777A",
        variables={
            "drafter-lookup": "#2BB58A",
            "drafter-retrieval": "#D68FB8",
            "drafter-ngram": "#E5D83A",
            "drafter-model": "#56B4E9",
            "drafter-lookahead": "#D5D9E2",
            "footer-background": "#14161B",
        },
    ),
    Theme(
        name=LIGHT,
        dark=False,
        primary="#2456B8",
        secondary="#5A6072",
        accent="#2456B8",
        foreground="#1F232B",
        background="#FBFBFA",
        surface="#FBFBFA",
        panel="#F0F0EE",
        boost="#F0F0EE",
        success="#00704F",
        warning="#8F5200",
        error="#B3261E",
        variables={
            "drafter-lookup": "#00704F",
            "drafter-retrieval": "#9C3F75",
            "drafter-ngram": "#6E6400",
            "drafter-model": "#00629B",
            "drafter-lookahead": "#1F232B",
            "footer-background": "#FBFBFA",
        },
    ),
)


def register_themes(app: App[Any]) -> None:
    """Make the themes available, and use the dark one until another is chosen."""
    for theme in _THEMES:
        app.register_theme(theme)
    app.theme = DARK
