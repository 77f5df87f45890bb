"""Drafters made in memory of a loaded model's own weights, where its backend can."""

from collections.abc import Callable, Sequence

from backends.base import Model, ModelInfo
from backends.choice import MLX


def derives(info: ModelInfo) -> bool:
    """Whether a model's backend makes drafters of its loaded weights; elsewhere they are files."""
    return info.backend == MLX


def derive(
    target: Model,
    variant: str,
    bits: int | None,
    skipped: Sequence[int],
    experts: int | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Model:
    """A drafter of a loaded model that derives, in so many bits a weight, without some layers.

    variant: its name in words. bits: None for those it has. experts: how many a token is sent to,
    None for as many as in the target. progress gets matrices done and in all.

    Raises:
        DraftUnavailableError: it cannot be made of this model.
    """
    from backends.mlx.model import MlxModel
    from backends.mlx.own_draft import derive as derive_of

    assert isinstance(target, MlxModel)
    return derive_of(target, variant, bits, skipped, experts, progress=progress)
