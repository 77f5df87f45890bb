"""Running models with MLX: Apple Silicon's own array library, and mlx-lm's model architectures."""

from backends.mlx.mlx_model import load

__all__ = ["load"]
