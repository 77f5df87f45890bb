"""Trained drafters that a model's file or folder brings, or that lie beside it; their facts.

A ModelError tells of a file that is missing or damaged.
"""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.files import gguf_drafter
from backends.files.attention import Attention, Layers, head_attention
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, drafter_in
from backends.files.gguf_header import parts, read_header, read_model
from backends.files.head_folders import head_folder as folder_drafter
from backends.files.head_folders.head_folder import drafter_in_folder, drafter_of_head, layout_of
from backends.files.head_folders.last_state_layout import (
    LAST_STATE,
    LastStateLayout,
    last_state_layout,
)
from backends.files.head_folders.shapes import MAP
from backends.files.head_folders.stored_head import CONFIG, StoredHead, read_head
from backends.files.mlx_folder import MlxFolder, is_mlx_folder
from models.bounded_files import read_object
from models.metadata.identity import stored_bytes
from models.metadata.memory_bill import (
    CHUNK,
    ModelFacts,
    facts_of,
    graph_size,
    mlx_settings,
    vocabulary_bytes,
)

_FOLDERS = (".", "MTP")
"""Where publishers put drafters, from the model's own folder."""

_MOST_FILES = 64
"""Most files that are read in a folder, so that a folder full of models delays nothing."""

_MOST_PARTS = 4
"""Most weight files of a head: published ones have one or two, large models many, with a header
each."""

_MOST_KEPT = 256
"""Folders whose drafter is remembered."""


_SPARE = 1 << 20
"""Bytes by which a drafter may be larger than its model, which only tiny ones are; larger files are
models themselves, and not read."""


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """A trained drafter, and its file or folder; misfit: why it cannot draft for the model."""

    path: Path
    drafter: TrainedDrafter
    misfit: str = ""


def expected_backend(path: Path) -> str:
    """The backend of a model that is not loaded: a folder is run by MLX alone."""
    return MLX if path.is_dir() else LLAMACPP


def drafter_of(path: Path) -> TrainedDrafter | None:
    """The trained drafter in a GGUF file with all its parts, or in a folder of safetensors.

    None if it brings none.
    """
    if path.is_dir():
        return _in_folder(path, _stamps(path))
    return drafter_in(*read_model(path))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _in_folder(path: Path, _stamps: tuple[object, ...]) -> TrainedDrafter | None:
    """Headers of all tensors are read once, until a file changes."""
    return drafter_in_folder(path)


def _stamps(path: Path) -> tuple[object, ...]:
    """What changes with the content of a folder."""
    try:
        found = [(file.name, file.stat()) for file in sorted(path.iterdir()) if file.is_file()]
    except OSError as error:
        raise ModelError(f"cannot read {path}", error.strerror or str(error)) from error
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def drafter_alone(path: Path) -> TrainedDrafter | None:
    """The trained drafter that a file or folder is; None for a model, and for what cannot be read.

    A folder's files that are for other programs do not keep its model from being used.
    """
    with contextlib.suppress(ModelError):
        found = drafter_of(path)
        return found if found is not None and found.is_alone else None
    return None


def misfit(drafter: TrainedDrafter, target: Path, backend: str = LLAMACPP) -> str:
    """Why a drafter cannot draft for a model, as far as headers tell; empty if it may.

    backend: the one that runs the model.
    """
    if backend == MLX:
        return folder_drafter.misfit(drafter, mlx_settings(target))
    return gguf_drafter.misfit(drafter, read_header(parts(target)[0]))


def found_for(path: Path, backend: str | None = None) -> list[FoundDrafter]:
    """Trained drafters for a model: its own layers, then those beside it.

    backend: the one that runs the model, by default the expected one; only what it can read is
    looked for. What is damaged, or is a model itself, is left out.
    """
    backend = backend or expected_backend(path)
    own = None
    with contextlib.suppress(ModelError) if path.is_dir() else contextlib.nullcontext():
        own = drafter_of(path)  # files of other programs in a folder may be damaged
    if own is not None and own.is_alone:
        return []
    mine = [FoundDrafter(path, own, own.fault)] if own else []
    return [*mine, *_beside(path, backend)]


def _beside(path: Path, backend: str) -> Iterator[FoundDrafter]:
    largest = stored_bytes(path) + _SPARE
    for place in _places(path, backend):
        with contextlib.suppress(ModelError, OSError):
            drafter = drafter_of(place) if stored_bytes(place) <= largest else None
            if drafter is not None and drafter.is_alone:
                yield FoundDrafter(place, drafter, misfit(drafter, path, backend))


def _places(path: Path, backend: str) -> Iterator[Path]:
    if backend == MLX:
        inside = [path] if path.is_dir() else []
        for folder in (*inside, path.parent):
            near = (each for each in _listed(folder) if each != path and is_mlx_folder(each))
            small = (one for one in near if len(list(one.glob("*.safetensors"))) <= _MOST_PARTS)
            yield from islice(small, _MOST_FILES)
        return
    own = set(parts(path))
    for folder in _FOLDERS:
        files = sorted((path.parent / folder).glob("*.gguf"))
        yield from [file for file in files if file not in own][:_MOST_FILES]
    yield from islice(filter(_is_last_state, _listed(path.parent)), _MOST_FILES)


def _is_last_state(folder: Path) -> bool:
    """Whether a folder has a head that both engines read, by its settings alone."""
    return read_object(folder / CONFIG).get("model_type") == LAST_STATE


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []


HEAD_PASS = 64
"""Most tokens of a head's pass."""

_FLOAT = 4
_NOTHING = "it brings nothing that drafts"


def _of_folder(path: Path, target: Path) -> ModelFacts:
    """Facts of the head in a folder, as MLX runs it; path: the model's own for its own layers."""
    head = read_head(path)
    drafter = drafter_of_head(head)
    reason = drafter.fault if drafter else _NOTHING
    if drafter is None or reason:
        raise ModelError(f"{path.name} cannot draft", reason)
    if drafter.kind is TrainedKind.LAST_STATE:
        return _of_last_state(drafter, last_state_layout(head))
    settings = mlx_settings(target)
    try:
        layers, rows, feed_forward, weight_bytes = _shape(head, drafter, settings)
    except ValueError as error:
        raise ModelError(f"{path.name} cannot draft", str(error)) from error
    return ModelFacts(
        weight_bytes=weight_bytes,
        n_vocab=settings.count("vocab_size"),
        width=settings.count("hidden_size"),
        feed_forward=feed_forward,
        context_limit=0,
        attention=Attention(layers, settings.number_bytes),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * drafter.width * rows,
        most_tokens=HEAD_PASS,
    )


def _of_last_state(drafter: TrainedDrafter, layout: LastStateLayout) -> ModelFacts:
    """It keeps nothing of the text, and its products are of one token, or of a tree's."""
    return ModelFacts(
        weight_bytes=_FLOAT * layout.numbers,
        n_vocab=layout.n_vocab,
        width=layout.width,
        feed_forward=layout.feed_forward,
        context_limit=0,
        attention=Attention(()),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * layout.width,
        most_rows=CHUNK,
        most_tokens=HEAD_PASS,
    )


def _shape(
    head: StoredHead, drafter: TrainedDrafter, target: MlxFolder
) -> tuple[tuple[Layers, ...], int, int, int]:
    """Layers with keys and values, rows kept of each token, inner width, and bytes of weights."""
    if (layout := layout_of(head, drafter.kind)) is not None:
        assert not isinstance(layout, LastStateLayout), "it has no layers that keep anything"
        kept = layout.attention
        layers = Layers(drafter.layers, kept.kv_heads, kept.head_size, kept.head_size)
        loaded = [stored for name, stored in layout.names.items() if name != MAP]
        weights = sum(head.tensors[name].bytes for name in loaded)
        return (layers,), layout.n_taps, layout.feed_forward, weights
    if drafter.kind is TrainedKind.ASSISTANT:  # it reads the model's keys and values
        feed_forward = head.settings.part("text_config").count("intermediate_size")
        return (), 1, feed_forward, sum(tensor.bytes for tensor in head.tensors.values())
    heads = target.count("num_attention_heads")
    size = target.count("head_dim") or target.count("hidden_size") // max(heads, 1)
    layers = Layers(drafter.layers, target.count("num_key_value_heads", heads), size, size)
    return (layers,), 1, target.count("intermediate_size"), drafter.read_bytes


def head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of a head for a model: in a file, or in a folder, each perhaps the model's own.

    One in the model's own GGUF file has no weights beside it. Its context is as large as the
    model's, whatever it was trained for.

    Raises:
        ModelError: a file is missing or damaged, or brings no head.
    """
    if path.is_dir():
        return _of_folder(path, target)
    drafter, of_file = drafter_of(path), facts_of(path)
    if drafter is None:
        raise ModelError(f"{path.name} cannot draft", _NOTHING)
    header, tensors = read_model(path)
    own_vocab = next((one.shape[-1] for one in tensors if one.name == "output.weight"), 0)
    reads_cache = drafter.kind is TrainedKind.ASSISTANT
    return ModelFacts(
        weight_bytes=0 if path == target else of_file.weight_bytes,
        n_vocab=read_header(parts(target)[0]).n_vocab,
        width=of_file.width,
        feed_forward=of_file.feed_forward,
        context_limit=0,
        attention=Attention(()) if reads_cache else head_attention(header, drafter.layers),
        n_layers=drafter.layers,
        row_bytes=_FLOAT * drafter.width * max(len(drafter.target_layers), 1),
        most_rows=CHUNK if reads_cache else None,
        output_rows=_output_rows(drafter, facts_of(target)),
        most_tokens=1 if reads_cache else HEAD_PASS,
        own_vocab=own_vocab if drafter.kind is TrainedKind.EAGLE3 else 0,
        vocabulary_bytes=0 if path == target else vocabulary_bytes(header),
        graph=graph_size(header, len(tensors)),
    )


def _output_rows(drafter: TrainedDrafter, target: ModelFacts) -> int:
    """Rows of logits of a head's pass: of a block, or of a tree where its model verifies trees.

    Those of a tree are copied, as each of its levels takes a pass.
    """
    match drafter.kind:
        case TrainedKind.ASSISTANT:
            return 1
        case TrainedKind.EAGLE3:  # those that it reads leave rows too
            return HEAD_PASS if target.attention.state_layers else 2 * HEAD_PASS
        case TrainedKind.NEXT_TOKEN_LAYERS:
            return 1 if target.attention.state_layers else 2 * HEAD_PASS
        case _:
            return drafter.longest + 1
