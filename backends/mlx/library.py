"""What of MLX is installed, and where it runs."""

from importlib import metadata

import mlx.core as mx

from backends.base import UsageError
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


def check_gpu_layers(gpu_layers: int | None) -> None:
    """Refuse a number of layers on the GPU: MLX runs all of them on it, or none.

    Raises:
        UsageError: a number was asked for.
    """
    if gpu_layers is not None:
        raise UsageError(
            "--gpu-layers means nothing to MLX", "it runs every layer on the GPU where there is one"
        )
