"""Drafters made in memory from a loaded model's own weights."""
