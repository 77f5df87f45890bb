"""Heads that draft blocks, by MLX: DFlash, DSpark and DFlash2."""
