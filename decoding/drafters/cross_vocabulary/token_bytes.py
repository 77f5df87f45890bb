"""The bytes of every token of a vocabulary, and the token of given bytes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backends.base import Tokenizer

_BYTE_ENTRY = re.compile(rb"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """What each token adds to a text, in bytes, so that vocabularies of any kind compare.

    by_token: by token id; b"" for control tokens and padding. tokens: one token for each piece; of
    several the one a tokenizer writes, which is not the spare one that stands for a lone byte.
    longest: bytes of the longest piece.
    """

    by_token: tuple[bytes, ...]
    tokens: Mapping[bytes, int]
    longest: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TokenBytes":
        """Ask a tokenizer for all its pieces: about a microsecond for each."""
        by_token = tuple(map(tokenizer.piece, range(tokenizer.n_vocab)))
        tokens: dict[bytes, int] = {}
        for token, piece in enumerate(by_token):
            if piece and (piece not in tokens or _is_byte(tokenizer, tokens[piece])):
                tokens[piece] = token
        return cls(by_token, tokens, max(map(len, by_token), default=0))

    def joined(self, tokens: Iterable[int]) -> bytes:
        """The text of tokens."""
        return b"".join(map(self.by_token.__getitem__, tokens))


def _is_byte(tokenizer: Tokenizer, token: int) -> bool:
    return _BYTE_ENTRY.fullmatch(tokenizer.entry(token)) is not None
