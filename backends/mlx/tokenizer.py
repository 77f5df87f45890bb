"""The tokenizer of an MLX folder, by the tokenizers library."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Engine

from backends.base import ModelError

_END_NAMES = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
     "<|end_of_text|>", "<|return|>", "<|call|>", "</s>", "<turn|>", "<eos>"}
)  # fmt: skip
"""Ends of a reply that not every folder's settings name."""


class MlxTokenizer:
    """A tokenizer.json with the settings beside it."""

    def __init__(
        self, engine: Engine, *, n_vocab: int, end_tokens: frozenset[int], template: str | None
    ) -> None:
        self._engine = engine
        self.n_vocab = n_vocab
        self.chat_template = template
        self._known = engine.get_vocab_size(with_added_tokens=True)
        added = engine.get_added_tokens_decoder()
        self._control = {number for number, one in added.items() if one.special}
        self._added = {number: one.content for number, one in added.items()}
        by_name = {one.content: number for number, one in added.items()}
        named = {by_name[name] for name in _END_NAMES if name in by_name}
        self.end_tokens = end_tokens | frozenset(named)
        first = engine.encode("").ids
        self.bos: int | None = first[0] if first and first[0] in self._control else None
        self.eos: int | None = min(end_tokens, default=None)
        self.special_texts = tuple(added[number].content for number in self._control)

    def encode(self, text: str, *, special: bool) -> list[int]:
        self._engine.encode_special_tokens = not special
        return self._engine.encode(text, add_special_tokens=False).ids

    def piece(self, token: int) -> bytes:
        if token in self._control:
            return b""
        return self._bytes(token)

    def entry(self, token: int) -> bytes:
        return self._bytes(token)

    def is_padding(self, token: int) -> bool:
        return self._engine.id_to_token(token) is None

    def _bytes(self, token: int) -> bytes:
        text = self._added.get(token)
        if text is not None:
            return text.encode()
        text = self._engine.id_to_token(token)
        if text is None:
            return b""
        if self._is_byte_level:
            return b"".join(_bytes_of(character) for character in text)
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return bytes([int(text[3:5], 16)])
        return text.replace("\u2581", " ").encode()

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(json.loads(self._engine.to_str()).get("decoder"))


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    shown = {chr(byte): byte for byte in plain}
    return shown | {chr(256 + place): byte for place, byte in enumerate(rest)}


_ALPHABET = _byte_alphabet()


def _bytes_of(character: str) -> bytes:
    byte = _ALPHABET.get(character)
    return character.encode() if byte is None else bytes([byte])


def read_tokenizer(folder: Path, config: dict[str, Any], n_vocab: int) -> MlxTokenizer:
    """The tokenizer of a folder.

    Raises:
        ModelError: it has none, or a damaged one.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(
            f"there is no tokenizer in {folder}", "tokenizer.json is missing", "Download it again."
        )
    try:
        engine = Engine.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise ModelError(f"{file} is damaged", str(error), "Download it again.") from error
    settings = _json(folder / "tokenizer_config.json")
    generation = _json(folder / "generation_config.json")
    ends = _ends(config) | _ends(generation)
    named = settings.get("eos_token")
    if isinstance(named, dict):
        named = cast(dict[str, Any], named).get("content")
    number = engine.token_to_id(named) if isinstance(named, str) else None
    if number is not None:
        ends |= {number}
    return MlxTokenizer(
        engine,
        n_vocab=n_vocab,
        end_tokens=frozenset(ends),
        template=_template(folder, settings),
    )


def _ends(settings: dict[str, Any]) -> set[int]:
    found = settings.get("eos_token_id")
    listed = cast(list[object], found) if isinstance(found, list) else [found]
    return {number for number in listed if type(number) is int}


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}", str(error)) from error
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in cast(list[dict[str, Any]], found)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} is damaged", str(error), "Download it again.") from error
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
