"""The bench: measured speedups of every method over the built-in suite."""
