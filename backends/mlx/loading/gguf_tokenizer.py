"""Rebuilding the tokenizer of a GGUF file with the tokenizers library.

Byte-level BPE only. Pre-tokenizers are those of llama.cpp (llama-vocab.cpp), so that both backends
give the same token ids.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors
from tokenizers import pre_tokenizers as cut

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""Token types of GGUF."""

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = "llama-bpe"
"""Adds a beginning-of-text token by default; words of the vocabulary need no merges."""


def read_engine(header: GgufHeader, texts: dict[str, Any]) -> Tokenizer:
    """Tokenizer of a file, from its header and the lists mx.load returns.

    Raises:
        ModelError: its parts are inconsistent.
    """
    tokens: list[str] = texts.get("tokenizer.ggml.tokens", [])
    listed = texts.get("tokenizer.ggml.token_type")
    kinds: list[int] = [] if listed is None else listed.tolist()
    if len(kinds) != len(tokens):
        raise ModelError("its tokenizer is damaged", "not every token has a type")
    cutter = str(header.metadata.get("tokenizer.ggml.pre"))
    engine = Tokenizer(_merger(tokens, kinds, texts.get("tokenizer.ggml.merges", []), cutter))
    engine.pre_tokenizer = _cutter(cutter)
    engine.decoder = decoders.ByteLevel()
    for kind, is_special in ((_CONTROL, True), (_USER_DEFINED, False)):
        named = [text for text, other in zip(tokens, kinds, strict=True) if other == kind]
        engine.add_tokens(
            [AddedToken(text, special=is_special, normalized=False) for text in named]
        )
    bos = header.metadata.get("tokenizer.ggml.bos_token_id")
    is_wanted = header.metadata.get("tokenizer.ggml.add_bos_token", cutter == _LLAMA)
    if is_wanted and isinstance(bos, int) and bos < len(tokens):
        engine.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)]
        )
    return engine


def _merger(
    tokens: Sequence[str], kinds: Sequence[int], merges: Sequence[str], cutter: str
) -> models.BPE:
    """Usable merges: like llama.cpp, those with parts that are no tokens are skipped."""
    vocabulary = {
        text: number
        for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind != _UNUSED
    }
    split = (merge.partition(" ") for merge in merges)
    pairs = [
        (left, right)
        for left, _, right in split
        if left in vocabulary and right in vocabulary and left + right in vocabulary
    ]
    return models.BPE(vocabulary, pairs, ignore_merges=cutter == _LLAMA)


def _cutter(name: str) -> cut.PreTokenizer:
    """Pre-tokenizer of a name."""
    gpt2 = cut.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt-2":
        return gpt2
    if name == "smollm":
        return cut.Sequence([cut.Digits(individual_digits=True), gpt2])
    words = _WORDS.format(digits="{1,3}" if name == _LLAMA else "")
    bytes_alone = cut.ByteLevel(add_prefix_space=False, use_regex=False)
    return cut.Sequence([cut.Split(Regex(words), "isolated"), bytes_alone])
