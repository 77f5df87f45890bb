"""Files that llama.cpp cannot load, and why."""

from pathlib import Path

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, read_header
from backends.llamacpp import library
from backends.llamacpp.header_assertions import broken_assertion


def checked_header(path: Path) -> GgufHeader:
    """The header of a file that llama.cpp can take without ending the process.

    Raises:
        ModelError: it is missing or damaged, or breaks what the engine takes for granted.
    """
    header = read_header(path)
    if reason := broken_assertion(header):
        raise ModelError(f"cannot run {path}", reason, "Choose another conversion of the model.")
    if not header.can_spell_any_text:
        # llama.cpp ends the process at the first letter that has no token.
        raise ModelError(
            f"cannot run {path}",
            "its SentencePiece vocabulary lacks byte tokens, so that some texts have no spelling",
            "Choose another conversion of the model.",
        )
    return header


def load_error(path: Path, header: GgufHeader) -> ModelError:
    """Why llama.cpp did not load a file, in its own words where there are no better ones."""
    reason = library.last_reason()
    remedy = "Download or copy it again, or choose another model."
    if "unknown model architecture" in reason:
        reason = f"this version of llama.cpp does not know the architecture {header.architecture!r}"
        remedy = "Choose another model, or a newer specchat."
    return ModelError(f"cannot load {path}", reason, remedy)
