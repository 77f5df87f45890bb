"""The contract of a model's tokenizer."""

from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back, exactly as the model was trained."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def bos(self) -> int | None:
        """The token put before every prompt, None where the model wants none."""
        ...

    @property
    def eos(self) -> int | None:
        """The token that ends a text, None where the model has none."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a reply."""
        ...

    @property
    def special_texts(self) -> tuple[str, ...]:
        """Texts of control tokens, which a user's own words must not turn into."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The Jinja source the model ships, None when it ships none."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of text; with special, texts of control tokens become those tokens."""
        ...

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes a token adds to a reply, perhaps part of a character; b"" for control."""
        ...

    def entry(self, token: int) -> bytes:
        """What tells a token from others: equal vocabularies share it, whatever engine has them.

        The bytes it stands for in a text; b"<0x0A>" of one that SentencePiece keeps for a lone
        byte; the name of a control token, and of one that only fills up the vocabulary.
        """
        ...

    def is_padding(self, token: int) -> bool:
        """Whether the entry only fills up the vocabulary and is never meant."""
        ...
