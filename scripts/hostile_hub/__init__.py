"""Tests downloads from a hostile model hub: `python -m scripts.hostile_hub`."""
