"""Other implementations that the bench compares with, for a loaded model."""

from collections.abc import Sequence

from backends.base import CacheType, Model
from backends.base.baseline_engine import BaselineEngine
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_import import importing_engine

_ALL = -1
"""All layers, as llama.cpp counts them."""


def baseline_engines(model: Model, n_ctx: int, drafter: Model | None) -> Sequence[BaselineEngine]:
    """Baselines for a loaded model, the engine's own speculative decoding included.

    drafter: a loaded model with the same vocabulary, if there is one.

    Raises:
        ModelError: a baseline cannot load the model.
    """
    info = model.info
    if info.backend == MLX:
        with importing_engine(MLX):
            from backends.mlx.mlx_baseline import mlx_baselines
        return mlx_baselines(model, drafter)
    with importing_engine(LLAMACPP):
        from backends.llamacpp.llama_baseline import LlamaBaseline
    is_on_gpu, cache_type = info.device.startswith("GPU"), info.cache_type or CacheType.F16
    layers = (info.gpu_layers if info.gpu_layers is not None else _ALL) if is_on_gpu else 0
    return [LlamaBaseline(info.path, n_ctx, info.threads, layers, cache_type)]
