"""Facts of a head for its memory bill: layers that draft for one model beside its context."""

from collections.abc import Sequence
from pathlib import Path

from backends.base import ModelError
from backends.files.attention import Attention, head_attention
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_header import Tensor, parts, read_header
from models.metadata.folder_head_facts import HEAD_PASS, folder_head_facts
from models.metadata.graph_size import graph_size
from models.metadata.model_facts import CHUNK, ModelFacts, facts_of, vocabulary_bytes
from models.metadata.trained_drafters import drafter_of

_FLOAT = 4


def head_facts(path: Path, target: Path) -> ModelFacts:
    """Facts of a head for a model: in a file, or in a folder, each perhaps the model's own.

    One in the model's own GGUF file has no weights beside it. Its context is as large as the
    model's, whatever it was trained for.

    Raises:
        ModelError: a file is missing or damaged, or brings no head.
    """
    if path.is_dir():
        return folder_head_facts(path, target)
    drafter, of_file = drafter_of(path), facts_of(path)
    if drafter is None:
        raise ModelError(f"{path.name} cannot draft", "it brings nothing that drafts")
    headers = [read_header(part) for part in parts(path)]
    header, tensors = headers[0], [one for part in headers for one in part.tensors]
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
        own_vocab=_own_vocab(tensors) if drafter.kind is TrainedKind.EAGLE3 else 0,
        vocabulary_bytes=0 if path == target else vocabulary_bytes(header),
        graph=graph_size(header, len(tensors)),
    )


def _own_vocab(tensors: Sequence[Tensor]) -> int:
    """Rows of an output matrix, of which each is of one token."""
    return next((one.shape[-1] for one in tensors if one.name == "output.weight"), 0)


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
