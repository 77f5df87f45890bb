"""Contract of a model's tokenizer."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """Control tokens that ask a model to fill a gap: before what precedes it, what follows, it."""

    prefix: int
    suffix: int
    middle: int


class Tokenizer(Protocol):
    """Text to token ids and back, exactly as the model was trained."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def bos(self) -> int | None:
        """Token put before every prompt, None if the model expects none."""
        ...

    @property
    def bos_text(self) -> str:
        """What templates call bos_token, whether it stands before prompts or not; "" without."""
        ...

    @property
    def eos(self) -> int | None:
        """Token that ends a text, None if the model has none."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a reply."""
        ...

    @property
    def infill(self) -> InfillTokens | None:
        """Tokens of a gap to fill, None if the model was not trained to fill one."""
        ...

    @property
    def special_texts(self) -> tuple[str, ...]:
        """Texts of control tokens and of user-defined ones that may be marks: no user's text."""
        ...

    @property
    def chat_template(self) -> str | None:
        """Jinja source of the model's chat template, None if it ships none."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of text; with special, special texts become their tokens, else none does."""
        ...

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of a token in a reply, perhaps part of a character; b"" if it is control."""
        ...

    def entry(self, token: int) -> bytes:
        """Engine-independent identity of a token, the same in equal vocabularies.

        Its bytes in a text; for a SentencePiece byte token its name, such as b"<0x0A>"; for control
        and padding tokens their name.
        """
        ...

    def is_padding(self, token: int) -> bool:
        """Whether the token only pads the vocabulary and is never used."""
        ...
