"""Parsing of `--draft`."""
