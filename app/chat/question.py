"""What a reply continues, where it is not a conversation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawText:
    """A text to continue as it is, without the chat template."""

    text: str


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap to fill between two texts, for models that were trained to."""

    before: str
    after: str
