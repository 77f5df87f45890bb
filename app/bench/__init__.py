"""The bench: measured speedups of every method over a suite of questions."""
