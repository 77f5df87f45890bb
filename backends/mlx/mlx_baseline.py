"""mlx-lm's own generation, plain and with its own speculative decoding, for the bench."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler

from backends.base import Model, ModelError
from backends.base.baseline_engine import Reply, timed_reply
from backends.mlx.mlx_model import MlxModel


@dataclass(frozen=True, slots=True)
class MlxBaseline:
    """The same weights as mlx-lm runs them, with its own settings and caches of its own."""

    name: str
    module: nn.Module
    drafter: nn.Module | None = None

    def reply(
        self,
        prompt: Sequence[int],
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        max_tokens: int,
        ends: Callable[[int], bool],
    ) -> Reply:
        """Continue a prompt.

        Raises:
            ModelError: it failed.
        """
        mx.random.seed(seed)
        sampler = make_sampler(temperature, top_p=top_p, min_p=min_p, top_k=top_k)
        steps = self._steps(mx.array(list(prompt)), sampler, max_tokens)
        return timed_reply(self.name, (int(found[0]) for found in steps), max_tokens, ends)

    def _steps(self, prompt: mx.array, sampler: Any, max_tokens: int) -> Iterable[tuple[Any, ...]]:
        if self.drafter is None:
            return generate_step(prompt, self.module, max_tokens=max_tokens, sampler=sampler)
        return speculative_generate_step(
            prompt, self.module, self.drafter, max_tokens=max_tokens, sampler=sampler
        )

    def close(self) -> None:
        """Nothing of its own is held: the weights are the model's."""


def mlx_baselines(model: Model, drafter: Model | None) -> list[MlxBaseline]:
    """Plain generation, and drafted where MLX runs a drafter of the same vocabulary.

    Raises:
        ModelError: mlx-lm is not what runs the model.
    """
    if not isinstance(model, MlxModel) or model.module is None:
        raise ModelError("mlx-lm cannot be compared", f"{model.info.name} is not run by it")
    found = [MlxBaseline("mlx-lm", model.module)]
    if isinstance(drafter, MlxModel) and drafter.module is not None:
        found.append(MlxBaseline("mlx-lm speculative", model.module, drafter.module))
    return found
