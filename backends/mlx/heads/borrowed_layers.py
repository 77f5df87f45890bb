"""The embedding and the output layer of a model, which heads borrow that have none."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx import nn

from backends.base import DraftUnavailableError
from backends.mlx.mlx_model import weights_of

Apply = Callable[[mx.array], mx.array]
"""A method and no module: as an attribute of a head's, a module would count as its own."""

_EMBEDDING, _OUTPUT = "embed_tokens", "lm_head"


def embedding_of(model: nn.Module) -> Apply:
    """A model's embedding of tokens as it is stored, (n,) to (n, width): some models scale it.

    Raises:
        DraftUnavailableError: it has none under the usual name.
    """
    embedding = _named(model, _EMBEDDING)
    if embedding is None:
        raise DraftUnavailableError(
            "a head cannot read this model", f"{type(model).__module__} has no {_EMBEDDING}"
        )
    return embedding.__call__


def output_of(model: nn.Module) -> Apply:
    """A model's output layer, (n, width) to (n, n_vocab): its embedding if it has no other.

    Raises:
        DraftUnavailableError: it has neither under the usual names.
    """
    output = _named(model, _OUTPUT)
    if output is not None:
        return output.__call__
    embedding_of(model)
    return _named(model, _EMBEDDING).as_linear


def output_bytes(model: nn.Module) -> int:
    """Size of the output layer that a head borrows, which it reads for each token or block."""
    output = _named(model, _OUTPUT)
    layer = _named(model, _EMBEDDING) if output is None else output
    return sum(array.nbytes for _, array in weights_of(layer))


def _named(model: nn.Module, name: str) -> Any:
    """The part of a model of this name, None if there is not exactly one."""
    parts = cast("list[tuple[str, Any]]", model.named_modules())
    found = [part for path, part in parts if path.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else None
