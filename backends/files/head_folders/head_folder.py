"""What a folder of safetensors brings for drafting, and its check before an engine sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_drafter import misfit as gguf_misfit
from backends.files.gguf_header import GgufHeader, reading
from backends.files.head_folders.block_layout import BlockLayout, block_layout
from backends.files.head_folders.eagle3_layout import Eagle3Layout, eagle3_layout
from backends.files.head_folders.last_state_layout import (
    LastStateLayout,
    last_state_layout,
    read_floats,
)
from backends.files.head_folders.shapes import MAP, drafted_tokens
from backends.files.head_folders.stored_head import Settings, StoredHead, read_head
from backends.files.mlx_folder import MlxFolder, experts_of

Layout = Eagle3Layout | BlockLayout | LastStateLayout

_TEXT = "text_config"

_ARCHITECTURES = {
    "DFlash2DraftModel": TrainedKind.DFLASH,
    "DFlashDraftModel": TrainedKind.DFLASH,
    "DFlashSpeculator": TrainedKind.DFLASH,
    "DSparkDraftModel": TrainedKind.DSPARK,
    "DSparkSpeculator": TrainedKind.DSPARK,
    "Eagle3DraftModel": TrainedKind.EAGLE3,
    "Eagle3LlamaForCausalLM": TrainedKind.EAGLE3,
    "Eagle3Speculator": TrainedKind.EAGLE3,
    "Gemma4AssistantForCausalLM": TrainedKind.ASSISTANT,
    "Gemma4DSparkModel": TrainedKind.DSPARK,
    "Gemma4UnifiedAssistantForCausalLM": TrainedKind.ASSISTANT,
    "Lfm2DSparkDraftModel": TrainedKind.DSPARK,
    "LingDSparkModel": TrainedKind.DSPARK,
    "LlamaForCausalLMEagle3": TrainedKind.EAGLE3,
    "Qwen3DSparkModel": TrainedKind.DSPARK,
    "SpecchatLastStateHead": TrainedKind.LAST_STATE,
}
"""Architectures that heads name."""

_PROJECTIONS = ("pre_projection.weight", "post_projection.weight")
_TABLE = "embed_tokens."
_EAGLE3_NORMS = ("midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight")
_LAST_STATE = ("heads.0.input", "heads.0.input.weight")
_PREDICTING = "mtp"
"""Part of the name of a next-token layer's tensors, and of a folder's kind with these alone."""

_PREDICTING_NORM = "pre_fc_norm_hidden.weight"


def drafter_in_folder(path: Path) -> TrainedDrafter | None:
    """The drafter in a folder, or a model's own next-token layers; None if it brings none."""
    return drafter_of_head(read_head(path))


def drafter_of_head(head: StoredHead) -> TrainedDrafter | None:
    """The drafter in a folder that was read; its fault says why it cannot draft, if so."""
    kind = kind_of(head)
    if kind is None:
        return None
    try:
        return _DESCRIBED[kind](head)
    except ValueError as error:
        alone = kind is not TrainedKind.NEXT_TOKEN_LAYERS or _is_sidecar(head)
        return TrainedDrafter(kind, is_alone=alone, fault=_fault(head, str(error)))


def kind_of(head: StoredHead) -> TrainedKind | None:
    """How a folder drafts, None if it is no head and has no layers that predict."""
    names = {name.removeprefix("model.") for name in head.tensors}
    if "markov_head.markov_w1.weight" in names:
        return TrainedKind.DSPARK
    if "fc.weight" in names and "hidden_norm.weight" in names:
        return TrainedKind.DFLASH
    if "fc.weight" in names and names.intersection(_EAGLE3_NORMS):
        return TrainedKind.EAGLE3
    if names.issuperset(_PROJECTIONS):
        return TrainedKind.ASSISTANT
    if names.intersection(_LAST_STATE):
        return TrainedKind.LAST_STATE
    try:
        architectures = head.settings.texts("architectures")
    except ValueError:
        architectures = ()
    if named := [_ARCHITECTURES[name] for name in architectures if name in _ARCHITECTURES]:
        return named[0]
    is_predicting = _is_sidecar(head) or any(_is_predicting(name) for name in names)
    return TrainedKind.NEXT_TOKEN_LAYERS if is_predicting else None


def misfit(drafter: TrainedDrafter, target: MlxFolder) -> str:
    """Why a drafter cannot draft for a model, as far as settings tell; empty if it may."""
    kind = family(str(target.config.get("model_type", "")))
    if why := drafter.misfit(kind, target.count("hidden_size"), target.count("vocab_size")):
        return why
    layers = target.count("num_hidden_layers")
    if beyond := [layer for layer in drafter.target_layers if not 0 <= layer < layers]:
        return f"it reads layer {beyond[0]:,} of a model whose last one is {layers - 1:,}"
    return ""


def family(model_type: str) -> str:
    """A kind of model without what tells its text part, or its next-token layers, from the rest.

    Models whose images and sounds need no layers of their own (gemma4_unified) are run as others.
    """
    model_type = model_type.removesuffix("_text").removesuffix(f"_{_PREDICTING}")
    return model_type.removesuffix("_text").removesuffix("_unified")


def layout_of(head: StoredHead, kind: TrainedKind) -> Layout | None:
    """The layout of a head whose layers are all its own; None of other kinds."""
    match kind:
        case TrainedKind.EAGLE3:
            return eagle3_layout(head)
        case TrainedKind.DFLASH | TrainedKind.DSPARK:
            return block_layout(head)
        case TrainedKind.LAST_STATE:
            return last_state_layout(head)
        case _:
            return None


def _eagle3(head: StoredHead) -> TrainedDrafter:
    layout = eagle3_layout(head)
    layer = _bytes(head, layout.names, ("layer.", "norm."))
    return TrainedDrafter(
        TrainedKind.EAGLE3,
        layers=1,
        width=layout.target_width,
        n_vocab=layout.n_vocab,
        target_layers=layout.taps,
        draw_bytes=layer + _bytes(head, layout.names, ("lm_head.",)),
        read_bytes=layer + _bytes(head, layout.names, ("fc.",)),
    )


def _block(head: StoredHead) -> TrainedDrafter:
    layout = block_layout(head)
    looked_up = 0 if layout.ties_output else _bytes(head, layout.names, ("embed_tokens.",))
    return TrainedDrafter(
        TrainedKind.DSPARK if layout.markov_rank else TrainedKind.DFLASH,
        layers=len(layout.layers),
        width=layout.target_width,
        n_vocab=layout.n_vocab,
        target_layers=layout.taps,
        longest=layout.longest,
        draw_bytes=_bytes(head, layout.names, ("",)) - looked_up,
        read_bytes=_bytes(head, layout.names, ("fc.",)),
    )


def _assistant(head: StoredHead) -> TrainedDrafter:
    settings = head.settings.under(head.settings.part(_TEXT))
    lacking = [name for name in _PROJECTIONS if name not in head.tensors]
    if lacking:
        raise ValueError(f"it lacks {lacking[0]}")
    return TrainedDrafter(
        TrainedKind.ASSISTANT,
        architecture="gemma4",
        layers=settings.count("num_hidden_layers"),
        width=head.settings.count("backbone_hidden_size", 1536),
        n_vocab=settings.count("vocab_size"),
        draw_bytes=_assistant_bytes(head),
    )


def _assistant_bytes(head: StoredHead) -> int:
    """Bytes that a draw reads: of the output layer only the clusters that it chooses, if any."""
    table = sum(tensor.bytes for name, tensor in head.tensors.items() if _TABLE in name)
    others = sum(tensor.bytes for tensor in head.tensors.values()) - table
    if not head.settings.flag("use_ordered_embeddings"):
        return others + table
    clusters = max(head.settings.count("num_centroids", 2048), 1)
    return others + table * head.settings.count("centroid_intermediate_top_k", 32) // clusters


def _next_token_layers(head: StoredHead) -> TrainedDrafter:
    settings = head.settings.under(head.settings.part(_TEXT))
    is_sidecar = _is_sidecar(head)
    own = [name for name in head.tensors if is_sidecar or _is_predicting(name)]
    if not own:
        raise ValueError("it has no weights")
    if not any(name.endswith(_PREDICTING_NORM) for name in own):
        raise ValueError(f"its next-token layers have {min(own)[:64]}, and no {_PREDICTING_NORM}")
    read = sum(head.tensors[name].bytes for name in own)
    layers = {name.partition("layers.")[2].partition(".")[0] for name in own if "layers." in name}
    return TrainedDrafter(
        TrainedKind.NEXT_TOKEN_LAYERS,
        is_alone=is_sidecar,
        architecture=family(head.settings.text("model_type")),
        layers=len(layers),
        width=settings.count("hidden_size"),
        n_vocab=settings.count("vocab_size"),
        draw_bytes=sum(round(head.tensors[name].bytes * _share(name, settings)) for name in own)
        + (0 if is_sidecar else _output_bytes(head)),
        read_bytes=read,
    )


def _share(name: str, settings: Settings) -> float:
    """Share of a tensor that a draw reads: of experts those that a token uses."""
    experts, active = experts_of(settings.count)
    is_expert = ".experts." in name or ".switch_mlp." in name
    return active / experts if experts and is_expert else 1.0


def _output_bytes(head: StoredHead) -> int:
    """Bytes of a model's output layer, or of the embedding that stands for it."""
    found = [
        sum(tensor.bytes for name, tensor in head.tensors.items() if part in name.split("."))
        for part in ("lm_head", "embed_tokens")
    ]
    return found[0] or found[1]


_FLOAT = 4


def _last_state(head: StoredHead) -> TrainedDrafter:
    layout = last_state_layout(head)
    return TrainedDrafter(
        TrainedKind.LAST_STATE,
        layers=layout.heads,
        width=layout.width,
        n_vocab=layout.n_vocab,
        draw_bytes=_FLOAT * layout.draw_numbers,
    )


_DESCRIBED: dict[TrainedKind, Callable[[StoredHead], TrainedDrafter]] = {
    TrainedKind.ASSISTANT: _assistant,
    TrainedKind.DFLASH: _block,
    TrainedKind.DSPARK: _block,
    TrainedKind.EAGLE3: _eagle3,
    TrainedKind.LAST_STATE: _last_state,
    TrainedKind.NEXT_TOKEN_LAYERS: _next_token_layers,
}


def _is_predicting(name: str) -> bool:
    return _PREDICTING in name.split(".")


def _is_sidecar(head: StoredHead) -> bool:
    """Whether a folder has next-token layers alone."""
    if head.tensors and all(_is_predicting(name) for name in head.tensors):
        return True
    model_type = head.settings.values.get("model_type")
    return isinstance(model_type, str) and model_type.endswith(f"_{_PREDICTING}")


def _fault(head: StoredHead, why: str) -> str:
    if not head.tensors and head.pickles:
        return f"its weights are in {head.pickles[0][:64]}, a program, which is never run"
    return why


def _bytes(head: StoredHead, names: Mapping[str, str], prefixes: tuple[str, ...]) -> int:
    return sum(
        head.tensors[stored].bytes for name, stored in names.items() if name.startswith(prefixes)
    )


@dataclass(frozen=True, slots=True)
class HeadFolder:
    """A folder with a head that fits a model.

    layout: of a head whose layers are all its own. drafted: the model's token of each of the
    head's, shape (tokens,), where it knows fewer.
    """

    head: StoredHead
    drafter: TrainedDrafter
    layout: Layout | None = None
    drafted: NDArray[np.int64] | None = None

    def last_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Weights, shapes and facts of a last-state head, as LastStateNet and LastStateHead ask."""
        layout, path = self.layout, self.head.path
        assert isinstance(layout, LastStateLayout), "it was checked"
        stored = {name: one for name, one in layout.names.items() if name != MAP}
        with reading(path):
            weights = read_floats(self.head, stored)
        net = {
            "weights": weights,
            "n_vocab": layout.n_vocab,
            "drafted": self.drafted,
            "epsilon": layout.epsilon,
        }
        return net, {
            "path": path,
            "name": path.name,
            "n_layers": layout.heads,
            "bytes_read_per_token": self.drafter.draw_bytes,
            "variant": self.drafter.kind.variant,
        }


def checked_head_folder(path: Path, target: MlxFolder | GgufHeader) -> HeadFolder:
    """Read a folder with a head that can run beside a model; path: the model's own for its own.

    Of next-token layers and assistants only what all have is checked.

    Raises:
        ModelError: a file is missing or damaged, or the two do not belong together.
    """
    head = read_head(path)
    drafter = drafter_of_head(head)
    what, remedy = f"{path.name} cannot draft", "Choose a head that was made for this model."
    if drafter is None:
        raise ModelError(what, "it brings nothing that drafts", "Choose another folder.")
    is_file = isinstance(target, GgufHeader)
    if reason := gguf_misfit(drafter, target) if is_file else misfit(drafter, target):
        raise ModelError(what, reason, remedy)
    if drafter.n_vocab and not is_file and not target.count("vocab_size"):
        why = "the model's config.json does not say how many tokens it has (vocab_size)"
        raise ModelError(what, why, remedy)
    try:
        layout = layout_of(head, drafter.kind)
        if isinstance(layout, Eagle3Layout) and not is_file:
            layers = target.count("num_hidden_layers")
            if min(layout.taps_in(layers)) < 0:
                raise ValueError(f"it reads three layers of a model that has {layers:,}")
        drafted = _drafted(head, layout)
    except ValueError as error:
        raise ModelError(what, str(error), remedy) from error
    return HeadFolder(head, drafter, layout, drafted)


def _drafted(head: StoredHead, layout: Layout | None) -> NDArray[np.int64] | None:
    if layout is None or MAP not in layout.names:
        return None
    name = layout.names[MAP]
    try:
        return drafted_tokens(head.files[name], head.tensors[name], layout.n_vocab)
    except OSError as error:
        raise ModelError(f"cannot read {head.files[name]}", str(error)) from error
