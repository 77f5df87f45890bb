"""Vocabularies of a head: its model's tokens, and the few that it may draft."""

from pathlib import Path

import numpy as np

from backends.files.gguf_header import GgufHeader
from backends.files.gguf_tokens import tokens_of
from backends.llamacpp.head_checks.header_facts import Reasons, tensor

_INT64 = 27
"""Number of the type in ggml."""

_DRAFTABLE = "d2t"
"""The tensor with the model's token for each that a head drafts."""


_KIND = "tokenizer.ggml.model"


def same_kind(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a head with another kind of vocabulary, or number of tokens."""
    own, theirs = (str(header.metadata.get(_KIND, "")) for header in (head, target))
    if own != theirs:
        yield f"its vocabulary is of kind {own[:20]!r}, and the model's of {theirs[:20]!r}"
    if head.n_vocab != target.n_vocab:
        yield f"it has {head.n_vocab:,} tokens, and the model {target.n_vocab:,}"
    own = tensor(head, "token_embd.weight")
    if own is not None and (len(own.shape) != 2 or own.shape[1] < target.n_vocab):
        yield "its embeddings lack some of the model's tokens"


def draftable_tokens(head: GgufHeader, path: Path) -> Reasons:
    """Reasons against the list of tokens that a head drafts; path: its file.

    llama.cpp asserts the list's type and length, and each of its numbers when it scatters logits.
    """
    listed, output = tensor(head, _DRAFTABLE), tensor(head, "output.weight")
    if listed is None:
        return
    count = listed.shape[0]
    if listed.ggml_type != _INT64 or listed.parameters != count:
        yield "its list of tokens is not one of 64-bit integers"
        return
    if output is None or output.shape[-1] != count:
        yield f"it lists {count:,} tokens and has no output for just these"
        return
    if listed.stored_bytes < 8 * count:
        yield "its list of tokens is cut short"
        return
    tokens = np.fromfile(path, "<i8", count, offset=listed.offset)
    if not ((tokens >= 0) & (tokens < head.n_vocab)).all():
        yield f"it drafts tokens that are not among its {head.n_vocab:,}"


def same_tokens(head: Path, target: Path) -> Reasons:
    """Reasons against a head in whose file a token is another text than in the model's."""
    if head == target:
        return
    pairs = zip(tokens_of(head), tokens_of(target), strict=False)
    for token, (own, theirs) in enumerate(pairs):
        if own != theirs:
            yield f"its token {token:,} is {_shown(own)}, and the model's is {_shown(theirs)}"


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", errors="replace"))
