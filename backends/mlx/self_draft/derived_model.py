"""Self-drafters made in memory from a loaded model: fewer bits, layers or active experts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx
from mlx import nn

from backends.base import DraftUnavailableError, ModelError
from backends.mlx.mlx_model import MlxModel, weights_of
from backends.mlx.self_draft.fewer_experts import with_fewer_experts
from backends.mlx.self_draft.requantized import in_fewer_bits
from backends.mlx.self_draft.skipped_layers import without_layers


def derive(
    target: MlxModel,
    variant: str,
    bits: int | None,
    skipped: Sequence[int],
    experts: int | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> MlxModel:
    """Make a drafter from a target's weights.

    It shares unchanged weights with the target, may be closed before or after it, and counts only
    its own weights in weight_bytes. variant: its name. bits: per weight, None for the target's own.
    skipped: layers to skip. experts: experts used per token, None for the target's number.
    progress: called with the number of matrices done and in total.

    Raises:
        DraftUnavailableError: the weights have no more bits than that, or the architecture does not
            support the change.
    """
    assert target.module is not None, "the model is closed"
    name = target.info.name
    module: nn.Module = target.module
    folder = target.folder
    try:
        if experts is not None:
            module = with_fewer_experts(module, target.info.active_experts, experts)
            folder = folder.with_active_experts(experts)
        if skipped:
            module = without_layers(module, skipped)
        if bits is not None:
            module = _smaller(module, bits, name, progress)
        made = MlxModel(
            module,
            target.tokenizer,
            target.info.path,
            folder,
        )
    except DraftUnavailableError:
        raise
    except Exception as error:  # code of an architecture may raise anything
        reason = error.why if isinstance(error, ModelError) else str(error)
        raise DraftUnavailableError(f"{name} cannot draft for itself", reason) from error
    finally:
        mx.clear_cache()
    shared = {id(array) for _, array in weights_of(target.module)}
    made.info = replace(
        made.info,
        variant=variant,
        quantization=f"{bits}-bit" if bits else target.info.quantization,
        weight_bytes=sum(
            array.nbytes for _, array in weights_of(module) if id(array) not in shared
        ),
        n_layers=target.info.n_layers - len(skipped),
    )
    return made


def _smaller(
    module: nn.Module, bits: int, name: str, progress: Callable[[int, int], None]
) -> nn.Module:
    made = in_fewer_bits(module, bits, progress)
    if made is module:
        raise DraftUnavailableError(
            f"{name} has no copy in {bits} bits", "its weights have no more bits than that"
        )
    return made
