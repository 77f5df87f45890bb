"""The check of a folder with a head before an engine sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.head_folders.block_layout import BlockLayout, block_layout
from backends.files.head_folders.drafted_tokens import MAP, drafted_tokens
from backends.files.head_folders.eagle3_layout import Eagle3Layout, eagle3_layout
from backends.files.head_folders.folder_drafter import drafter_of, misfit
from backends.files.head_folders.stored_head import StoredHead, read_head
from backends.files.mlx_folder import MlxFolder
from backends.files.safetensors_header import StoredTensor

Layout = Eagle3Layout | BlockLayout


@dataclass(frozen=True, slots=True)
class HeadFolder:
    """A folder with a head that fits a model.

    config: its config.json as written. weights: its tensors by name as stored; files: where each
    is. layout: of an EAGLE-3 head or a drafter of blocks. drafted: the model's token of each of the
    head's, shape (tokens,), where it knows fewer.
    """

    path: Path
    kind: TrainedKind
    config: Mapping[str, Any]
    weights: Mapping[str, StoredTensor]
    files: Mapping[str, Path]
    drafter: TrainedDrafter
    layout: Layout | None = None
    drafted: NDArray[np.int64] | None = None


def checked_head_folder(path: Path, target: MlxFolder) -> HeadFolder:
    """Read a folder with a head that can run beside a model; path: the model's own for its own.

    Of next-token layers and assistants only what all have is checked.

    Raises:
        ModelError: a file is missing or damaged, or the two do not belong together.
    """
    head = read_head(path)
    drafter = drafter_of(head)
    if drafter is None:
        raise _refusal(path, "it brings nothing that drafts", "Choose another folder.")
    if reason := misfit(drafter, target) or _other_tokens(drafter, target):
        raise _refusal(path, reason, "Choose a head that was made for this model.")
    try:
        layout = _layout(head, drafter.kind)
        if reason := _past_layers(layout, target):
            raise ValueError(reason)
        drafted = _drafted(head, layout)
    except ValueError as error:
        raise _refusal(path, str(error), "Choose a head that was made for this model.") from error
    return HeadFolder(
        path,
        drafter.kind,
        head.settings.values,
        head.tensors,
        head.files,
        drafter,
        layout,
        drafted,
    )


def _refusal(path: Path, reason: str, remedy: str) -> ModelError:
    return ModelError(f"{path.name} cannot draft", reason, remedy)


def _layout(head: StoredHead, kind: TrainedKind) -> Layout | None:
    match kind:
        case TrainedKind.EAGLE3:
            return eagle3_layout(head)
        case TrainedKind.DFLASH | TrainedKind.DSPARK:
            return block_layout(head)
        case _:
            return None


def _other_tokens(drafter: TrainedDrafter, target: MlxFolder) -> str:
    """Why a head and a model that does not say how many tokens it has do not fit; empty if so."""
    if target.count("vocab_size") or not drafter.n_vocab:
        return ""
    return "the model's config.json does not say how many tokens it has (vocab_size)"


def _past_layers(layout: Layout | None, target: MlxFolder) -> str:
    """Why a head cannot read the layers that it reads by default; empty if it can."""
    layers = target.count("num_hidden_layers")
    if not isinstance(layout, Eagle3Layout) or min(layout.taps_in(layers)) >= 0:
        return ""
    return f"it reads three layers of a model that has {layers:,}"


def _drafted(head: StoredHead, layout: Layout | None) -> NDArray[np.int64] | None:
    if layout is None or not layout.has_map:
        return None
    name = layout.names[MAP]
    try:
        return drafted_tokens(head.files[name], head.tensors[name], layout.n_vocab)
    except OSError as error:
        raise ModelError(f"cannot read {head.files[name]}", str(error)) from error
