"""Tokenizer of a model loaded by llama.cpp."""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, cast

from llama_cpp import llama_cpp as api

from backends.base import InfillTokens, ModelError, no_images
from backends.base.images import NO_PROJECTOR, Image
from backends.chat.message import marks_of, plain_tokens

if TYPE_CHECKING:
    from backends.llamacpp.vision import Vision

_PIECE_BYTES = 256
_PIECES = 8192
"""Size of the cache: texts repeat most of their tokens."""
_NO_TOKEN = -1


class LlamaTokenizer:
    """Tokenizer of a loaded model; valid until the model is closed."""

    def __init__(self, model: api.llama_model_p, chat_template: str | None) -> None:
        vocabulary = api.llama_model_get_vocab(model)
        if vocabulary is None:
            raise ModelError("the model has no vocabulary")
        self._vocabulary = vocabulary
        self.piece = lru_cache(_PIECES)(self._spelled)
        self._buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        self.n_vocab = api.llama_vocab_n_tokens(vocabulary)
        self.chat_template = chat_template
        self._end_tokens: frozenset[int] | None = None
        self.vision: Vision | None = None
        self.image_refusal = NO_PROJECTOR

    @property
    def bos(self) -> int | None:
        token = cast("int", api.llama_vocab_bos(self._vocabulary))
        wanted = api.llama_vocab_get_add_bos(self._vocabulary)
        return token if wanted and token != _NO_TOKEN else None

    @property
    def bos_text(self) -> str:
        token = cast("int", api.llama_vocab_bos(self._vocabulary))
        return "" if token == _NO_TOKEN else self.entry(token).decode("utf-8", errors="replace")

    @property
    def eos(self) -> int | None:
        token = cast("int", api.llama_vocab_eos(self._vocabulary))
        return token if token != _NO_TOKEN else None

    @property
    def end_tokens(self) -> frozenset[int]:
        if self._end_tokens is None:
            self._end_tokens = frozenset(self._where(api.llama_vocab_is_eog))
        return self._end_tokens

    @property
    def infill(self) -> InfillTokens | None:
        known = (api.llama_vocab_fim_pre, api.llama_vocab_fim_suf, api.llama_vocab_fim_mid)
        tokens = [cast("int", token(self._vocabulary)) for token in known]
        return None if _NO_TOKEN in tokens else InfillTokens(*tokens)

    @property
    def special_texts(self) -> tuple[str, ...]:
        return self._special_texts  # a cached property is none of a protocol

    @cached_property
    def _special_texts(self) -> tuple[str, ...]:
        control = self._texts(self._where(api.llama_vocab_is_control))
        return (*filter(None, control), *self._marks)

    @cached_property
    def _marks(self) -> tuple[str, ...]:
        """Texts of user-defined tokens that may be marks: the engine matches them in any text."""
        return marks_of(self._texts(self._where(_is_user_defined)), self.chat_template)

    def _texts(self, tokens: Iterable[int]) -> Iterator[str]:
        return (self.entry(token).decode("utf-8", errors="replace") for token in tokens)

    def _where(self, holds: Callable[[api.llama_vocab_p, int], bool]) -> list[int]:
        vocabulary = self._vocabulary
        return [token for token in range(self.n_vocab) if holds(vocabulary, token)]

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special:
            return self._encoded(text, special=True)
        encode = partial(self._encoded, special=False)
        return plain_tokens(encode, self.piece, text, self._marks)

    def whole(self, text: str) -> list[int]:
        """Encode a text that stands alone, with the tokens that begin and end one."""
        return self._encoded(text, special=False, ends=True)

    def _encoded(self, text: str, *, special: bool, ends: bool = False) -> list[int]:
        data = text.encode("utf-8")
        capacity = len(data) + 8
        tokens = (api.llama_token * capacity)()
        count = api.llama_tokenize(
            self._vocabulary, data, len(data), tokens, capacity, ends, special
        )
        if count < 0:
            tokens = (api.llama_token * -count)()
            count = api.llama_tokenize(
                self._vocabulary, data, len(data), tokens, -count, ends, special
            )
        return tokens[:count]

    def entry(self, token: int) -> bytes:
        if api.llama_vocab_get_attr(self._vocabulary, token) & api.LLAMA_TOKEN_ATTR_BYTE:
            return self._spelling(token)
        return self._spelled(token, True) or self._spelling(token)

    def is_padding(self, token: int) -> bool:
        attributes = api.llama_vocab_get_attr(self._vocabulary, token)
        unused = attributes == 0 or attributes & api.LLAMA_TOKEN_ATTR_UNUSED
        return bool(unused) or self._spelling(token).startswith(b"[PAD")

    def image_tokens(self, image: Image) -> list[int]:
        if self.vision is None:
            raise no_images(self.image_refusal)
        return self.vision.tokens(image)

    def _spelled(self, token: int, special: bool = False) -> bytes:
        """Bytes of a token in a text; special: also of control tokens."""
        size = api.llama_token_to_piece(
            self._vocabulary, token, self._buffer, len(self._buffer), 0, special
        )
        if size < 0:
            self._buffer = ctypes.create_string_buffer(-size)
            return self._spelled(token, special)
        return ctypes.string_at(self._buffer, size)

    def _spelling(self, token: int) -> bytes:
        """Text of a token in the file, which may be in GPT-2's byte alphabet."""
        return api.llama_vocab_get_text(self._vocabulary, token) or b""


def _is_user_defined(vocabulary: api.llama_vocab_p, token: int) -> bool:
    attributes = api.llama_vocab_get_attr(vocabulary, token)
    return bool(attributes & api.LLAMA_TOKEN_ATTR_USER_DEFINED)
