"""Contrast of colours, as WCAG 2.2 defines it."""

from textual.color import BLACK, WHITE, Color

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
