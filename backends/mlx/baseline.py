"""Baselines of the bench: mlx-lm's own generation, plain and speculative."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler

from backends.base import Model, ModelError, Warping
from backends.base.baseline_engine import BaselineEngine
from backends.mlx.model import MlxModel


@dataclass(frozen=True)
class MlxBaseline(BaselineEngine):
    """A loaded model run by mlx-lm, with its settings and separate caches."""

    name: str
    module: nn.Module
    drafter: nn.Module | None = None

    def tokens(
        self, prompt: Sequence[int], warping: Warping, seed: int, max_tokens: int
    ) -> Iterable[int]:
        mx.random.seed(seed)
        sampler = make_sampler(
            warping.temperature, top_p=warping.top_p, min_p=warping.min_p, top_k=warping.top_k
        )
        steps = self._steps(mx.array(list(prompt)), sampler, max_tokens)
        return (int(step[0]) for step in steps)

    def _steps(self, prompt: mx.array, sampler: Any, max_tokens: int) -> Iterable[tuple[Any, ...]]:
        if self.drafter is None:
            return generate_step(prompt, self.module, max_tokens=max_tokens, sampler=sampler)
        return speculative_generate_step(
            prompt, self.module, self.drafter, max_tokens=max_tokens, sampler=sampler
        )


def mlx_baselines(model: Model, drafter: Model | None) -> list[MlxBaseline]:
    """Plain generation, and speculative if MLX runs a drafter of the same vocabulary.

    Raises:
        ModelError: the model is not run by MLX.
    """
    if not isinstance(model, MlxModel) or model.module is None:
        raise ModelError("mlx-lm cannot be compared", f"{model.info.name} is not run by it")
    baselines = [MlxBaseline("mlx-lm", model.module)]
    if isinstance(drafter, MlxModel) and drafter.module is not None:
        baselines.append(MlxBaseline("mlx-lm speculative", model.module, drafter.module))
    return baselines
