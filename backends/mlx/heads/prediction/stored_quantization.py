"""Quantization of a head's weights, as far as their shapes tell it."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Mapping
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.utils import infer_quant_config


def quantize_as_stored(module: nn.Module, weights: Mapping[str, mx.array]) -> None:
    """Make those parts of a module quantized whose stored weights are; others stay as they are.

    weights: by name, as they are loaded into the module after this.

    Raises:
        ValueError: some are quantized in a way that is not known.
    """

    def settings(name: str, part: nn.Module) -> bool | dict[str, Any]:
        if f"{name}.scales" not in weights or not hasattr(part, "to_quantized"):
            return False
        return cast("dict[str, Any]", infer_quant_config(name, part, dict(weights)))

    nn.quantize(module, class_predicate=settings)
