"""Checks of a file before llama.cpp loads it, and errors of loading."""

from pathlib import Path

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, read_header
from backends.llamacpp import library
from backends.llamacpp.file_checks.header_assertions import broken_assertion
from backends.llamacpp.head_checks.alone import why_not_alone


def checked_header(path: Path) -> GgufHeader:
    """Read the header of a file that llama.cpp loads without aborting the process.

    Raises:
        ModelError: it is missing or damaged, or violates an assertion of the engine.
    """
    header = read_header(path)
    if reason := broken_assertion(header):
        raise ModelError(f"cannot run {path}", reason, "Choose another conversion of the model.")
    if reason := why_not_alone(header):
        raise ModelError(f"cannot run {path}", reason, "Name the model itself.")
    if not header.can_spell_any_text:
        # llama.cpp aborts at the first letter without a token.
        raise ModelError(
            f"cannot run {path}",
            "its SentencePiece vocabulary lacks byte tokens, so that some texts cannot be encoded",
            "Choose another conversion of the model.",
        )
    return header


def load_error(path: Path, header: GgufHeader) -> ModelError:
    """Error for a file that llama.cpp did not load, with the engine's reason."""
    reason = library.last_reason()
    remedy = "Download or copy it again, or choose another model."
    if "unknown model architecture" in reason:
        reason = f"this version of llama.cpp does not know the architecture {header.architecture!r}"
        remedy = "Choose another model, or a newer specchat."
    return ModelError(f"cannot load {path}", reason, remedy)
