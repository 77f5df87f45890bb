"""Self-drafters made in memory from a loaded model: fewer bits, layers or active experts."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import CacheList, KVCache

from backends.base import DraftUnavailableError, ModelError
from backends.mlx.layer_taps import with_layers, with_parts
from backends.mlx.model import MlxModel, weights_of

_COUNTS = ("top_k", "num_experts_per_tok")
"""Names of the number of active experts, in a router or in the layer with one."""


def with_fewer_experts(model: nn.Module, active: int, wanted: int) -> nn.Module:
    """View of a model whose routers choose wanted experts instead of active ones."""

    def fewer(part: Any, _path: str) -> Any:
        attributes = vars(part) if isinstance(part, nn.Module) else {}
        counts = [name for name in _COUNTS if attributes.get(name) == active]
        if not counts:
            return None
        view = copy.copy(part)
        for name in counts:
            object.__setattr__(view, name, wanted)
        for key, inner in part.items():
            view[key] = with_parts(inner, fewer)
        return view

    view = with_parts(model, fewer)
    if view is model:
        raise DraftUnavailableError(
            "the number of experts cannot be reduced",
            f"{type(model).__module__} stores it elsewhere",
        )
    return view


_GROUP_SIZES = (64, 32)
"""Weights that share a scale, preferred first; the width must be a multiple."""

_Wanted = Callable[[str, nn.Module], object]
"""Predicate of an architecture, by path and module: whether the module is quantized."""


def in_fewer_bits(model: nn.Module, bits: int, progress: Callable[[int, int], None]) -> nn.Module:
    """Copy of a model with linear layers, experts and embeddings in so many bits per weight.

    Shared are norms, weights with no more bits, odd widths, and what the architecture keeps more
    precise (such as a router). Matrices are evaluated one by one: at most one is held in floats.
    progress: called after each with the number done and in total.
    """
    wanted = cast(
        "_Wanted", getattr(model, "quant_predicate", None) or (lambda _path, _module: True)
    )
    total = sum(_is_matrix(module) for module in model.modules())
    done = itertools.count(1)

    def smaller(part: Any, path: str) -> Any:
        if not isinstance(part, nn.Module) or not _is_matrix(part):
            return None
        if wanted(path, part) is not True:
            return part
        made = _leaf(part, bits)
        progress(next(done), total)
        return made

    return with_parts(model, smaller)


def _is_matrix(held: Any) -> bool:
    return ("scales" in held and "weight" in held) or hasattr(held, "to_quantized")


def _leaf(held: Any, bits: int) -> nn.Module:
    """A matrix, or one per expert, in fewer bits; the same object if it stays unchanged."""
    is_quantized = "scales" in held
    weight = held.weight
    if is_quantized:
        scales_by_input = held.get("global_scale") is not None or isinstance(held, nn.QQLinear)
        if held.bits <= bits or scales_by_input:
            return held
        weight = mx.dequantize(
            weight,
            held.scales,
            held.get("biases"),
            group_size=held.group_size,
            bits=held.bits,
            mode=held.mode,
        )
    group_size = next((size for size in _GROUP_SIZES if weight.shape[-1] % size == 0), None)
    if group_size is None:
        return held
    if is_quantized:
        made = copy.copy(held)
        made.weight, made.scales, made.biases = mx.quantize(weight, group_size, bits)
        made.group_size, made.bits, made.mode = group_size, bits, "affine"
    else:
        made = cast("Any", held).to_quantized(group_size=group_size, bits=bits)
    mx.eval(made.parameters())
    return made


class SkippedLayer(nn.Module):
    """Takes the place of a skipped layer and returns its input.

    Architectures find layers by index: those with sliding windows, and the one whose cache the
    attention mask is made from. So the cache of a skipped layer counts tokens too, at two bytes
    each.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        # Bypasses nn.Module's bookkeeping, so that its weights do not count as the view's.
        object.__setattr__(self, "_layer", layer)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_layer"], name)

    def __call__(self, hidden: mx.array, *others: Any, **named: Any) -> mx.array:
        batch, count = hidden.shape[:2]
        mark = mx.zeros((batch, 1, count, 1), dtype=mx.uint8)
        for argument in (*others, *named.values()):
            _count(argument, mark)
        return hidden


def _count(argument: Any, mark: mx.array) -> None:
    """Add marks for new tokens to a cache; other arguments of a layer are ignored."""
    if isinstance(argument, KVCache):
        argument.update_and_fetch(mark, mark)
    elif isinstance(argument, CacheList):
        for cache in argument.caches:
            _count(cache, mark)


def without_layers(model: nn.Module, skipped: Sequence[int]) -> nn.Module:
    def skipping(body: nn.Module, name: str) -> nn.Module:
        body[name] = [
            SkippedLayer(layer) if number in skipped else layer
            for number, layer in enumerate(body[name])
        ]
        return body

    view = with_layers(model, skipping)
    if view is None:
        raise DraftUnavailableError(
            "layers cannot be skipped", f"{type(model).__module__} does not hold them as one list"
        )
    return view


def derive(
    target: MlxModel,
    variant: str,
    bits: int | None,
    skipped: Sequence[int],
    experts: int | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> MlxModel:
    """Make a drafter from a target's weights; all else as of model_loading.derive.

    It shares unchanged weights with the target, may be closed before or after it, and counts only
    its own weights in weight_bytes.
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
            whole, module = module, in_fewer_bits(module, bits, progress)
            if module is whole:
                why = "its weights have no more bits than that"
                raise DraftUnavailableError(f"{name} has no copy in {bits} bits", why)
        made = MlxModel(module, target.tokenizer, target.info.path, folder)
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
