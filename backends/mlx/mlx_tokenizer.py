"""Tokenizer of an MLX model, run by the tokenizers library."""

import re
from collections.abc import Mapping, Set
from functools import cached_property

from tokenizers import Tokenizer as Engine

from backends.base import InfillTokens
from backends.base.plain_text import adds_space, marks_of, plain_tokens

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
        return plain_tokens(self._plain, text, self._marks, has_space=self._has_space)

    @cached_property
    def _has_space(self) -> bool:
        return adds_space(self._plain, self.piece)

    def _plain(self, text: str) -> list[int]:
        return self._encoded(text, special=False)

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
    """Tokens of a gap to fill, if the vocabulary has all three. by_name: its added tokens."""
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
