"""Assistants of Gemma 4 on MLX: their layers, and running them on the cache of their model."""
