"""Text without unpaired surrogates, which no file, clipboard or tokenizer accepts."""


def whole_characters(text: str) -> str:
    """Text with unpaired surrogates, as in undecodable file names, replaced by question marks."""
    return text.encode(errors="replace").decode()
