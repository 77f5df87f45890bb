"""Widths at which the screen is laid out anew."""

BREAKPOINTS = [(0, "-narrow"), (80, "-normal"), (110, "-wide")]
"""For Textual: the fewest columns of a layout, and its class on every screen."""
