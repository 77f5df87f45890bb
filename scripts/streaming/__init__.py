"""Measuring models larger than memory, under a memory limit of the script's own."""
