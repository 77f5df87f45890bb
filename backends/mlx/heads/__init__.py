"""Heads run by MLX: layers that draft for one model, from what its passes leave."""
