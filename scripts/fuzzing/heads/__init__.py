"""Fuzzing the models of 2026 and the heads that draft for them."""
