"""Spells any bytes in the tokens of one vocabulary."""

from backends.base import Tokenizer
from decoding.drafters.cross_vocabulary.token_bytes import TokenBytes


class Speller:
    """The tokenizer's own tokens where they give exactly the text, else the longest pieces.

    A tokenizer alone is not enough: some put a space before every text, some rewrite characters,
    and none takes a text that ends within a character.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._adds_space = pieces.joined(tokenizer.encode("a", special=False)).startswith(b" ")

    def spell(self, data: bytes) -> list[int]:
        """Tokens whose pieces join to data; a tokenizer's approximation where there are none."""
        tokens: list[int] = []
        while data:
            try:
                text, broken, data = data.decode(), b"", b""
            except UnicodeDecodeError as error:
                text = data[: error.start].decode()
                broken, data = data[error.start : error.end], data[error.end :]
            if text:
                tokens += self._of_text(text)
            tokens += self._longest(broken)
        return tokens

    def _of_text(self, text: str) -> list[int]:
        data = text.encode()
        lead = b""
        if self._adds_space and text[0] == " ":
            text = text[1:]
        elif self._adds_space:
            text, lead = f"\n{text}", b" \n"
        tokens = self._tokenizer.encode(text, special=False)
        start = self._after(tokens, len(lead))
        if start is not None and self._pieces.joined(tokens[start:]) == data:
            return tokens[start:]
        longest = self._longest(data)
        if start is None or self._pieces.joined(longest) == data:
            return longest
        return tokens[start:]

    def _after(self, tokens: list[int], size: int) -> int | None:
        """How many tokens make up the first size bytes; None where one reaches beyond."""
        count = 0
        while size > 0 and count < len(tokens):
            size -= len(self._pieces.by_token[tokens[count]])
            count += 1
        return count if size == 0 else None

    def _longest(self, data: bytes) -> list[int]:
        """The longest piece at each place; bytes that no piece begins with are left out."""
        tokens: list[int] = []
        start = 0
        while start < len(data):
            for size in range(min(self._pieces.longest, len(data) - start), 0, -1):
                token = self._pieces.tokens.get(data[start : start + size])
                if token is not None:
                    tokens.append(token)
                    break
            else:
                size = 1
            start += size
        return tokens
