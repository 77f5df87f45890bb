"""Widths at which the screen is laid out anew."""

BREAKPOINTS = [(0, "-narrow"), (80, "-normal"), (110, "-wide")]
"""For Textual: the fewest columns of a layout, and its class on every screen."""

HEIGHTS = [(0, "-short"), (8, "-low"), (20, "-tall")]
"""The fewest rows of a layout, and its class; the prompt has no frame where it is short."""
