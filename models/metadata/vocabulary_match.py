"""Comparing the vocabularies of two models."""

import hashlib

from backends.base import DraftUnavailableError, Tokenizer

_SAMPLES = 1024


def vocabulary_digest(tokenizer: Tokenizer) -> bytes:
    """32-byte digest of a vocabulary's size, control texts and evenly spaced samples.

    Takes a millisecond at any size; a collision only costs speed.
    """
    size = tokenizer.n_vocab
    digest = hashlib.sha256(repr((size, tokenizer.special_texts)).encode())
    for token in range(0, size, max(size // _SAMPLES, 1)):
        digest.update(tokenizer.entry(token) + b"\0")
    return digest.digest()


def require_same_vocabulary(target: Tokenizer, drafter: Tokenizer, name: str) -> None:
    """Compare two vocabularies token by token; the longer may end in padding.

    Raises:
        DraftUnavailableError: they differ; the error names the first difference.
    """
    common = min(target.n_vocab, drafter.n_vocab)
    for token in range(common):
        ours, theirs = target.entry(token), drafter.entry(token)
        if ours != theirs and not (target.is_padding(token) and drafter.is_padding(token)):
            raise _mismatch(
                name, f"token {token} is {_shown(ours)} in the model, {_shown(theirs)} in {name}"
            )
    longer = target if target.n_vocab > common else drafter
    for token in range(common, longer.n_vocab):
        if not longer.is_padding(token):
            owner = "the model" if longer is target else name
            raise _mismatch(
                name, f"token {token}, {_shown(longer.entry(token))}, is only in {owner}"
            )


def _mismatch(name: str, difference: str) -> DraftUnavailableError:
    return DraftUnavailableError(f"{name} cannot draft: vocabulary mismatch", difference)


def _shown(entry: bytes) -> str:
    return repr(entry.decode("utf-8", errors="replace"))
