"""Measurements of reading ahead."""
