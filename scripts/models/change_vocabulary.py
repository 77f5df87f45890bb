"""A drafter of another vocabulary, made from a model: `python -m scripts.models.change_vocabulary`.

Token numbers are permuted with the rows of the embedding and output matrices, and a share of the
tokens gets another text; with --sentencepiece the vocabulary of a byte-level BPE is also written in
the form of SentencePiece. The weights stay, so the file says what the source says, in other tokens:
what drafting across vocabularies loses can be told apart from what the drafter lacks.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from backends.base import SpecchatError, UsageError

_TOKENS = "tokenizer.ggml.tokens"
_KINDS = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_SCORES = "tokenizer.ggml.scores"
_BY_TOKEN = (_TOKENS, _KINDS, _SCORES)
_MATRICES = ("token_embd.weight", "output.weight")


@dataclass(frozen=True, slots=True)
class Change:
    """What to change. changed: share of the ordinary tokens that get another text."""

    changed: float = 0.1
    sentencepiece: bool = False
    seed: int = 0


def change_vocabulary(source: Path, target: Path, change: Change) -> None:
    """Write source with another vocabulary to target.

    Raises:
        UsageError: its vocabulary is no byte-level BPE, and another form is wanted.
    """
    reader = gguf.GGUFReader(source)
    fields = {name: entry.contents() for name, entry in reader.fields.items()}
    if change.sentencepiece and fields["tokenizer.ggml.model"] != "gpt2":
        raise UsageError(f"{source} cannot be rewritten", "its vocabulary is no byte-level BPE")
    random = np.random.default_rng(change.seed)
    _rename(fields, change.changed, random)
    if change.sentencepiece:
        _as_sentencepiece(fields)
    order = random.permutation(len(fields[_TOKENS]))
    """order[new] is the old number of a token."""
    _permute(fields, order)
    _write(reader, fields, order, target)


def _rename(fields: dict[str, Any], share: float, random: np.random.Generator) -> None:
    """Give a share of the longer ordinary tokens a text that no other token has."""
    tokens, kinds = fields[_TOKENS], fields[_KINDS]
    ordinary = [
        token
        for token, kind in enumerate(kinds)
        if kind == gguf.TokenType.NORMAL and len(tokens[token]) > 1
    ]
    chosen = random.choice(ordinary, round(share * len(ordinary)), replace=False)
    taken = set(tokens)
    gone: set[str] = set()
    for token in chosen:
        renamed = tokens[token] + "~"
        while renamed in taken:
            renamed += "~"
        taken.add(renamed)
        gone.add(tokens[token])
        tokens[token] = renamed
    if _MERGES in fields:
        # A merge whose result is no token would leave the text in single bytes.
        fields[_MERGES] = [one for one in fields[_MERGES] if one.replace(" ", "") not in gone]


def _as_sentencepiece(fields: dict[str, Any]) -> None:
    """Byte-level BPE as SentencePiece has it: plain text, ranks for merges, bytes as a fallback."""
    byte_of = {char: byte for byte, char in _byte_characters().items()}
    tokens, kinds = fields[_TOKENS], fields[_KINDS]
    taken: set[str] = set()
    for token, kind in enumerate(kinds):
        if kind != gguf.TokenType.NORMAL:
            continue
        data = bytes(byte_of[char] for char in tokens[token])
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        if len(data) == 1 and (not text or not text.isprintable()):
            tokens[token], kinds[token] = f"<0x{data[0]:02X}>", int(gguf.TokenType.BYTE)
            continue
        tokens[token] = text.replace(" ", "\u2581")
        if not text or tokens[token] in taken:
            tokens[token], kinds[token] = f"[PAD{token}]", int(gguf.TokenType.UNUSED)
        taken.add(tokens[token])
    _add_missing_bytes(tokens, kinds)
    fields["tokenizer.ggml.model"] = "llama"
    fields[_SCORES] = [-float(rank) for rank in range(len(tokens))]
    del fields[_MERGES], fields["tokenizer.ggml.pre"]


def _add_missing_bytes(tokens: list[str], kinds: list[int]) -> None:
    """Let unused tokens stand for bytes the source has none for: llama.cpp wants all of them."""
    unused = [token for token, kind in enumerate(kinds) if kind == gguf.TokenType.UNUSED]
    known = set(tokens)
    for byte in range(256):
        name = f"<0x{byte:02X}>"
        if name not in known and not (byte < 128 and chr(byte) in known) and unused:
            token = unused.pop()
            tokens[token], kinds[token] = name, int(gguf.TokenType.BYTE)


def _byte_characters() -> dict[int, str]:
    """The character by which GPT-2's vocabulary writes each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(256 + place) for place, byte in enumerate(hidden)
    }


def _permute(fields: dict[str, Any], order: np.ndarray) -> None:
    number = np.argsort(order)
    for name in _BY_TOKEN:
        if name in fields:
            fields[name] = [fields[name][old] for old in order]
    for name in fields:
        if name.startswith("tokenizer.ggml.") and name.endswith("_token_id"):
            fields[name] = int(number[fields[name]])


def _write(
    reader: gguf.GGUFReader, fields: dict[str, Any], order: np.ndarray, target: Path
) -> None:
    writer = gguf.GGUFWriter(target, fields["general.architecture"])
    for name, value in fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        if name == _SCORES:
            writer.add_token_scores(value)
            continue
        entry = reader.fields[name]
        inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, entry.types[0], inner)
    for tensor in reader.tensors:
        rows = tensor.data[order] if tensor.name in _MATRICES else tensor.data
        writer.add_tensor(tensor.name, rows, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--changed", type=float, default=0.1, help="share of tokens renamed")
    parser.add_argument("--sentencepiece", action="store_true")
    arguments = parser.parse_args()
    try:
        change = Change(arguments.changed, arguments.sentencepiece)
        change_vocabulary(arguments.source, arguments.target, change)
    except SpecchatError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
