"""What of MLX is installed, and where it runs."""

from importlib import metadata

import mlx.core as mx

from backends.device import processor_name


def build() -> str:
    """The versions that run a model: others may take other times, and round otherwise."""
    return f"MLX {metadata.version('mlx')}, mlx-lm {metadata.version('mlx-lm')}"


def has_gpu() -> bool:
    """Whether models run on Apple's GPU."""
    return mx.metal.is_available() and mx.default_device() == mx.gpu


def device() -> str:
    """What a model runs on, as the screen names it."""
    return f"GPU: {processor_name()}" if has_gpu() else f"CPU: {processor_name()}"
