"""Loading a head's weights into its layers."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from typing import TypeVar

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from backends.files.head_folders.drafted_tokens import MAP
from backends.files.head_folders.head_folder import HeadFolder
from backends.mlx.heads.prediction.prediction_weights import read_weights
from backends.mlx.heads.prediction.stored_quantization import quantize_as_stored
from backends.mlx.loading.folder_checks import require_memory

Layers = TypeVar("Layers", bound=nn.Module)


def with_weights(layers: Layers, folder: HeadFolder) -> Layers:
    """The layers of a checked folder with their weights, in memory.

    Raises:
        OutOfMemoryError: the weights are larger than free memory.
        ValueError: they do not fit the layers, in words.
    """
    assert folder.layout is not None, "it was checked"
    names = {common: stored for common, stored in folder.layout.names.items() if common != MAP}
    require_memory(folder.path, sum(folder.weights[name].bytes for name in names.values()))
    weights = read_weights(names, folder.files)
    quantize_as_stored(layers, weights)
    layers.eval()
    layers.load_weights(list(weights.items()))
    mx.eval(layers.parameters())
    return layers


def dtype_of(layers: nn.Module) -> mx.Dtype:
    """Type of the numbers that layers with a final norm compute in."""
    return layers["norm"]["weight"].dtype


def over_all_tokens(
    rows: mx.array, drafted: NDArray[np.int64] | None, n_vocab: int, fill: float
) -> mx.array:
    """Rows over a head's tokens, (n, drafted), as float32 over those of its model, (n, n_vocab).

    drafted: the model's token of each of the head's, None if they are the same. fill: of others.
    """
    rows = rows.astype(mx.float32)
    if drafted is None:
        return rows
    full = mx.full((len(rows), n_vocab), fill, dtype=mx.float32)
    places = mx.broadcast_to(mx.array(drafted.astype(np.int32)), rows.shape)
    return mx.put_along_axis(full, places, rows, axis=-1)
