"""Fits an EAGLE-3 head to a small llama model and measures what it accepts."""
