"""Tokens that a head and its model have, from the head's tensors and settings."""

from backends.files.head_folders.drafted_tokens import MAP
from backends.files.head_folders.settings import Settings
from backends.files.head_folders.tensors import Tensors


def vocabularies(
    tensors: Tensors,
    settings: Settings,
    width: int,
    target_width: int,
    *,
    ties_output: bool = False,
) -> tuple[int, int]:
    """Tokens of the model, and those that the head drafts.

    width, target_width: of their hidden states. ties_output: whether its embedding is its output
    layer too.

    Raises:
        ValueError: its tensors do not fit them, or what it borrows does not fit it, in words.
    """
    n_vocab = settings.count("vocab_size")
    has_embeddings, has_output = tensors.has("embed_tokens"), tensors.has("lm_head")
    if has_embeddings:
        n_vocab = n_vocab or tensors.matrix("embed_tokens")[0]
        tensors.require("embed_tokens", n_vocab, width)
    if not n_vocab:
        raise ValueError("its config.json does not say how many tokens there are (vocab_size)")
    n_drafted = settings.count("draft_vocab_size") or n_vocab
    if has_output:
        tensors.require("lm_head", n_drafted, width)
    listed = tensors.by_name.get(MAP)
    if listed is not None and listed.shape != (n_drafted,):
        raise ValueError(f"it drafts {n_drafted:,} tokens, and {MAP} has {list(listed.shape)}")
    if n_drafted != n_vocab and (listed is None or not has_output):
        what = MAP if listed is None else "lm_head.weight"
        raise ValueError(f"it drafts {n_drafted:,} of {n_vocab:,} tokens and lacks {what}")
    borrows = not has_embeddings or not (has_output or ties_output)
    if borrows and width != target_width:
        raise ValueError(f"its width is {width:,}, and the embeddings that it borrows have another")
    return n_vocab, n_drafted
