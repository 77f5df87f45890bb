"""The MLX backend: Apple's array library with mlx-lm's model architectures."""

from backends.mlx.model import load

__all__ = ["load"]
