"""Tokenizer of an MLX model, run by the tokenizers library, and reading it from a folder."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import re
from collections.abc import Callable, Mapping, Set
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Engine

from backends.base import InfillTokens, ModelError, no_images
from backends.base.images import NO_MLX, Image
from backends.chat.message import marks_of, plain_tokens
from backends.files.mlx_folder import REMEDY, read_settings

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")

_END_NAMES = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>",
     "<|flush|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "</s>",
     "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>", "<turn|>", "<|tool_response>"}
)  # fmt: skip

_FILE_SEPARATORS = frozenset(
    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
     "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"}
)  # fmt: skip
"""Separate the files that code models are trained on: text after them is no reply."""

_INFILL = (
    ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
     "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"),
    ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
     "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"),
    ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
     "\u2581<MID>", "<|code_middle|>", "<|middle|>"),
)  # fmt: skip
"""Names of the tokens of a gap to fill, as llama.cpp knows them: prefix, suffix, middle."""

_CALLS = frozenset({"<|call|>", "<|calls|>"})
_LAST = frozenset({"<|return|>", "<|flush|>"})


class MlxTokenizer:
    """A tokenizer.json with its settings.

    n_vocab: rows of the embedding; those past the tokenizer's entries are padding.
    bos: begins a text by the settings. adds_bos: whether it is put before every prompt if the
    tokenizer itself adds no such token.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        n_vocab: int,
        end_tokens: frozenset[int],
        template: str | None,
        bos: int | None = None,
        adds_bos: bool = False,
        eos: int | None = None,
    ) -> None:
        self._engine = engine
        self.n_vocab = n_vocab
        self.chat_template = template
        added = engine.get_added_tokens_decoder()
        self._control = {number for number, token in added.items() if token.special}
        self._added = {number: token.content for number, token in added.items()}
        by_name = {token.content: number for number, token in added.items() if number < n_vocab}
        self.end_tokens = _ends_of_reply(end_tokens, by_name)
        self.infill = _infill(by_name)
        first = engine.encode("").ids
        self.bos = first[0] if first and first[0] in self._control else bos if adds_bos else None
        named = self.bos if bos is None else bos
        self.bos_text = "" if named is None else engine.id_to_token(named) or ""
        self.eos = min(end_tokens, default=None) if eos is None else eos
        control = [added[number].content for number in self._control]
        others = [token.content for token in added.values() if not token.special]
        self._marks = marks_of(others, template)
        self.special_texts = (*control, *self._marks)

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            return self._encoded(text, special=True)
        encode = partial(self._encoded, special=False)
        return plain_tokens(encode, self.piece, text, self._marks)

    def _encoded(self, text: str, *, special: bool) -> list[int]:
        self._engine.encode_special_tokens = not special
        tokens = self._engine.encode(text, add_special_tokens=False).ids
        # A tokenizer may have tokens, say for images, without a row in the weights.
        return [token for token in tokens if token < self.n_vocab]

    def piece(self, token: int) -> bytes:
        if token in self._control:
            return b""
        text = self._engine.id_to_token(token)
        return b"" if text is None else self._bytes(text)

    def entry(self, token: int) -> bytes:
        text = self._added.get(token)
        if text is None and "ByteFallback" in self._decoder:
            text = self._engine.id_to_token(token) or ""
            return text.encode() if _BYTE.fullmatch(text) else self.piece(token)
        return self.piece(token) if text is None else text.encode()

    def is_padding(self, token: int) -> bool:
        return self._engine.id_to_token(token) is None

    def image_tokens(self, image: Image) -> list[int]:  # noqa: ARG002 - as others do
        raise no_images(NO_MLX)

    def _bytes(self, text: str) -> bytes:
        """Bytes of an entry in a text, as the library's decoders give them."""
        if "ByteLevel" in self._decoder:
            try:
                return bytes(_ALPHABET[character] for character in text)
            except KeyError:  # an added token is plain text
                return text.encode()
        if "ByteFallback" in self._decoder and (match := _BYTE.fullmatch(text)):
            return bytes([int(match[1], 16)])
        return text.replace("\u2581", " ").encode()

    @cached_property
    def _decoder(self) -> str:
        """Representation of the library's decoder, which names its kinds."""
        return str(self._engine.decoder or self._engine.pre_tokenizer)


def _infill(by_name: Mapping[str, int]) -> InfillTokens | None:
    known = [[by_name[name] for name in names if name in by_name] for names in _INFILL]
    return InfillTokens(*(tokens[0] for tokens in known)) if all(known) else None


def _byte_alphabet() -> dict[str, int]:
    """Byte of each printable character in byte-level vocabularies (GPT-2)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    shown = {chr(byte): byte for byte in plain}
    return shown | {chr(256 + place): byte for place, byte in enumerate(rest)}


_ALPHABET = _byte_alphabet()


def _ends_of_reply(configured: Set[int], by_name: Mapping[str, int]) -> frozenset[int]:
    """Tokens that end a reply: the configured ones, and those with a known name.

    Settings often omit some. by_name: added tokens of the vocabulary.
    """
    names = (_END_NAMES | _FILE_SEPARATORS) & by_name.keys()
    if names & _CALLS and names & _LAST:
        names -= {"<|end|>"}  # ends only a part of a reply in gpt-oss and Solar
    if "<|tool_response>" in names:
        names -= {"</s>"}  # Gemma 4 uses it otherwise
    return frozenset(configured) | {by_name[name] for name in names}


_MAX_TEMPLATE = 1 << 20
_OTHER_FORMS = ("tokenizer.model", "vocab.json", "vocab.txt")
"""Files of other tokenizer formats, which transformers may convert."""


def read_engine(folder: Path) -> Engine:
    """Read the tokenizer of a folder, without running code from the folder."""
    file = folder / "tokenizer.json"
    if file.is_file():
        return _made(file, lambda: Engine.from_file(str(file)))
    for name in _OTHER_FORMS:
        if (folder / name).is_file():
            return _made(folder / name, lambda: _converted(folder))
    raise ModelError(f"there is no tokenizer in {folder}", "tokenizer.json is missing", REMEDY)


def _converted(folder: Path) -> Engine:
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    engine = loaded.backend_tokenizer
    assert isinstance(engine, Engine), "it needs a tokenizer.json"
    return engine


def _made(file: Path, make: Callable[[], Engine]) -> Engine:
    try:
        engine = make()
        # Settings from training: prompts must not be truncated or padded.
        engine.no_truncation()
        engine.no_padding()
        engine.encode("A text.")
        return engine
    except BaseException as error:  # the libraries raise nothing more precise, and panic in Rust
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = f"its tokenizer cannot be read ({' '.join(str(error).split())[:200]})"
        raise ModelError(f"{file} is damaged or of an unknown kind", why, REMEDY) from error


def read_tokenizer(
    folder: Path, config: dict[str, Any], n_vocab: int, engine: Engine | None = None
) -> MlxTokenizer:
    engine = engine or read_engine(folder)
    largest = max(engine.get_vocab(with_added_tokens=False).values(), default=-1)
    if largest >= n_vocab:
        raise ModelError(
            f"the tokenizer in {folder} belongs to another model",
            f"it has {largest + 1:,} tokens, and the weights {n_vocab:,}",
            REMEDY,
        )
    settings = read_settings(folder / "tokenizer_config.json")
    generation = read_settings(folder / "generation_config.json")

    def named(key: str) -> int | None:
        """Token that the settings give by its text."""
        text = settings.get(key)
        if isinstance(text, dict):
            text = cast("dict[str, Any]", text).get("content")
        number = engine.token_to_id(text) if isinstance(text, str) else None
        return number if number is not None and number < n_vocab else None

    eos = named("eos_token")
    ends = _ends(config) | _ends(generation) | ({eos} if eos is not None else set())
    return MlxTokenizer(
        engine,
        n_vocab=n_vocab,
        end_tokens=frozenset(number for number in ends if 0 <= number < n_vocab),
        template=_template(folder, settings),
        bos=named("bos_token"),
        adds_bos=settings.get("add_bos_token") is True,
        eos=eos,
    )


def _ends(settings: dict[str, Any]) -> set[int]:
    value = settings.get("eos_token_id")
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    return {number for number in listed if type(number) is int}


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Chat template: from a separate file, otherwise from the settings (one, or several named)."""
    file = folder / "chat_template.jinja"
    try:
        if file.stat().st_size <= _MAX_TEMPLATE:
            return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}", str(error), REMEDY) from error
    template = settings.get("chat_template")
    if template is None:
        template = read_settings(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        listed = [entry for entry in cast("list[object]", template) if isinstance(entry, dict)]
        entries = cast("list[dict[str, object]]", listed)
        template = {str(entry.get("name")): entry.get("template") for entry in entries}
    if isinstance(template, dict):
        template = cast("dict[str, object]", template).get("default")
    return template if isinstance(template, str) else None
