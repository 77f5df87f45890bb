"""Measurements of drafting while the target verifies."""
