"""Text without halves of characters, which no file, clipboard or tokenizer takes."""


def whole_characters(text: str) -> str:
    """A text with a question mark for each half of a character, as names of files may have."""
    return text.encode(errors="replace").decode()
