"""Images for llama.cpp's models: its mtmd library makes rows of them, which passes take as tokens.

An image is one chunk or several, with tokens of the model before, between and after them. Sources:
tools/mtmd/mtmd.h and mtmd-helper.cpp of llama.cpp.
"""

import ctypes
import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as api
from numpy.typing import NDArray

from backends.base import Logits, ModelError, OutOfMemoryError, PassStoppedError
from backends.base.images import IMAGE_TOKENS, Image
from backends.base.model import pass_is_stopped
from backends.files.gguf_header import GgufHeader, read_header
from backends.hardware import gpu_loss
from backends.hardware.host import available_memory, physical_cores
from backends.llamacpp import library

MOST_TOKENS = 1024
"""Most tokens of a chunk: models that take images of any size are given smaller ones."""

_BETWEEN_LOOKS = 4
"""Operations of an encoder, which has some 25 in a layer, between two looks whether to stop it."""

_MOST_ROW_BYTES = 256 << 20
"""Of encoded images that are kept, beside the latest one."""

_WHOLE = ("gemma3", "gemma4v", "gemma4uv", "deepseek4v")
"""Projectors for whose images each position attends to all others: they go in one pass."""

_BY_PLACE = ("deepseek4v", "hunyuanvl")
"""Projectors whose rows depend on what stands before the image, so that they cannot be kept."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """An image, or a part of one, as passes take it.

    tokens: one for each row. places: from the chunk's first position on, in as many dimensions as
    the model has, shape (1 or 4, tokens). span: positions that it takes. is_whole: whether it goes
    in one pass, in which each row attends to all others.
    """

    tokens: tuple[int, ...]
    places: NDArray[np.int32]
    span: int
    is_whole: bool
    image: Image


def projector_header(path: Path) -> GgufHeader:
    """Header of a projector for images. Raises ModelError: it is damaged, or for something else."""
    header = read_header(path)
    kind = projector_kind(header)
    if header.architecture != "clip" or not header.metadata.get("clip.has_vision_encoder"):
        raise ModelError(f"{path.name} cannot be used", "it is no projector for images")
    if kind in _BY_PLACE:
        why = f"images of {kind} depend on what stands before them"
        raise ModelError(f"{path.name} cannot be used", why)
    for key in ("image_size", "patch_size", "block_count", "attention.head_count"):
        value = header.metadata.get(f"clip.vision.{key}")
        if not isinstance(value, int) or not 0 < value <= 1 << 14:
            raise ModelError(f"{path.name} cannot be used", f"clip.vision.{key} is {value}")
    return header


def projector_kind(header: GgufHeader) -> str:
    kind = header.metadata.get("clip.projector_type")
    return str(kind or header.metadata.get("clip.vision.projector_type"))


class Vision:
    """A projector beside a model. It is loaded for the first image, on the model's thread."""

    def __init__(
        self, model: api.llama_model_p, path: Path, *, threads: int, offloaded: bool
    ) -> None:
        """Raises ModelError: the file is damaged, or no projector for images."""
        self.path = path
        self.is_whole = projector_kind(projector_header(path)) in _WHOLE
        self._model = model
        self._threads, self._offloaded = threads, offloaded
        stat = path.stat()
        self._identity = f"{stat.st_size} {stat.st_mtime_ns}"
        self._context: int | None = None
        self._callback = api.ggml_backend_sched_eval_callback(self._look)
        self._looked, self._is_stopped = 0, False
        self._tokens: dict[str, list[int]] = {}
        self._chunks: dict[int, Chunk] = {}
        """By their first token."""
        self._rows: dict[int, Logits] = {}
        """Rows of chunks by their first token, the latest image's last."""

    def tokens(self, image: Image) -> list[int]:
        """Tokens that stand for an image, with the model's own around it.

        Raises:
            UsageError: it is damaged.
            ModelError: the projector cannot be loaded.
        """
        if image.digest not in self._tokens:
            tokens: list[int] = []
            count = ctypes.c_size_t()
            with self._divided(image) as parts:
                for part in parts:
                    chunk = self._chunk(part, image, len(tokens))
                    if chunk is None:
                        count = ctypes.c_size_t()
                        text = mtmd_library().mtmd_input_chunk_get_tokens_text(
                            part, ctypes.byref(count)
                        )
                        tokens += text[: count.value]
                    else:
                        self._chunks[chunk.tokens[0]] = chunk
                        tokens += chunk.tokens
            self._tokens[image.digest] = tokens
        return self._tokens[image.digest]

    def chunk(self, token: int) -> Chunk:
        """The chunk that begins with a token. Raises ModelError: there is none."""
        if token not in self._chunks:
            raise ModelError("an image is no longer known", "it was not in this prompt")
        return self._chunks[token]

    def rows(self, chunk: Chunk) -> Logits:
        """The rows of a chunk, shape (tokens, width); its image is encoded unless that was done.

        Raises:
            PassStoppedError: it was stopped (see stopping_passes), on the processor.
            ModelError: the engine failed.
        """
        first = chunk.tokens[0]
        if first not in self._rows:
            place, mtmd = 0, mtmd_library()
            with self._divided(chunk.image) as parts:
                for part in parts:
                    encoded = self._chunk(part, chunk.image, place)
                    place += mtmd.mtmd_input_chunk_get_n_tokens(part)
                    if encoded is not None:
                        self._encode(part)
                        rows = mtmd.mtmd_get_output_embd(self._loaded())
                        width = api.llama_model_n_embd_inp(self._model)
                        shape = (len(encoded.tokens), width)
                        self._rows[encoded.tokens[0]] = np.ctypeslib.as_array(rows, shape).copy()
        rows = self._rows.pop(first)
        while sum(kept.nbytes for kept in self._rows.values()) > _MOST_ROW_BYTES:
            del self._rows[next(iter(self._rows))]
        self._rows[first] = rows
        return rows

    def _encode(self, part: Any) -> None:
        self._looked, self._is_stopped = 0, pass_is_stopped()
        failed = not self._is_stopped and mtmd_library().mtmd_encode_chunk(self._loaded(), part)
        if self._is_stopped:
            raise PassStoppedError
        if failed:
            raise ModelError("the image was not encoded", library.last_reason())

    def _look(self, _tensor: int, is_asked: bool, _data: object) -> bool:
        """Asked by the engine where to look, and there whether to go on with its graph."""
        if is_asked:
            self._looked += 1
            return self._looked % _BETWEEN_LOOKS == 0
        is_stopped, self._is_stopped = self._is_stopped, True  # if Ctrl+C takes the answer
        self._is_stopped = is_stopped or pass_is_stopped()
        return not self._is_stopped

    def _chunk(self, part: Any, image: Image, place: int) -> Chunk | None:
        """A part of an image after so many tokens of it; None for a part that is text."""
        mtmd = mtmd_library()
        if mtmd.mtmd_input_chunk_get_type(part) != mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE:
            return None
        count = mtmd.mtmd_input_chunk_get_n_tokens(part)
        named = f"{image.digest} {self._identity} {place}".encode()
        numbers = np.frombuffer(hashlib.shake_128(named).digest(4 * count), "<u4")
        tokens = (numbers % IMAGE_TOKENS + IMAGE_TOKENS).tolist()
        places = np.arange(count, dtype=np.int32)[None]
        if mtmd.mtmd_decode_use_mrope(self._loaded()):
            found = (mtmd.mtmd_decoder_pos * count)()
            tokens_of = mtmd.mtmd_input_chunk_get_tokens_image(part)
            mtmd.mtmd_helper_image_get_decoder_pos(tokens_of, 0, found)
            places = np.array([(one.t, one.y, one.x, one.z) for one in found], np.int32).T
        span = mtmd.mtmd_input_chunk_get_n_pos(part)
        is_whole = mtmd.mtmd_decode_use_non_causal(self._loaded(), part)
        return Chunk(tuple(tokens), places, span, is_whole, image)

    @contextmanager
    def _divided(self, image: Image) -> Generator[Iterator[Any]]:
        """The parts of an image, valid within the block."""
        mtmd, context = mtmd_library(), self._loaded()
        with ExitStack() as stack:
            pixels = np.asarray(image.picture())
            data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
            bitmap = mtmd.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], data)
            stack.callback(mtmd.mtmd_bitmap_free, bitmap)
            parts = mtmd.mtmd_input_chunks_init()
            stack.callback(mtmd.mtmd_input_chunks_free, parts)
            marker = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(context, parts, ctypes.byref(text), bitmaps, 1):
                raise ModelError("the image was not read", library.last_reason())
            count = mtmd.mtmd_input_chunks_size(parts)
            yield (mtmd.mtmd_input_chunks_get(parts, index) for index in range(count))

    def _loaded(self) -> Any:
        if self._context is None:
            mtmd = mtmd_library()
            library.forget_log()
            parameters = mtmd.mtmd_context_params_default()
            parameters.use_gpu = self._offloaded
            parameters.n_threads = self._threads or physical_cores()
            parameters.print_timings = parameters.warmup = False
            parameters.image_max_tokens = MOST_TOKENS
            if not self._offloaded:  # a GPU takes moments, and longer with each look
                parameters.cb_eval = self._callback
            needed, free = self.path.stat().st_size, available_memory()
            if needed > free:
                why = f"it takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
                raise OutOfMemoryError(f"the projector {self.path.name} cannot be loaded", why)
            path = os.fsencode(self.path)
            self._context = mtmd.mtmd_init_from_file(path, self._model, parameters)
            if self._context is None:
                what = f"the projector {self.path.name} cannot be loaded"
                raise ModelError(what, library.last_reason(), "Get the one of this very model.")
        return self._context

    def close(self) -> None:
        if self._context is not None:
            mtmd_library().mtmd_free(self._context)
            self._context = None


@cache
def mtmd_library() -> Any:
    try:
        mtmd: Any = import_module("llama_cpp.mtmd_cpp")
    except (OSError, RuntimeError) as error:  # a build without it
        raise ModelError("images cannot be read", f"this llama.cpp has no mtmd: {error}") from error
    mtmd.mtmd_helper_log_set(library.keep_log, ctypes.c_void_p(0))
    gpu_loss.guard(mtmd)
    return mtmd


Pass = tuple[int, int, Chunk | None]
"""A pass over tokens from one place to another; over all of an image's, or over text."""


class HeldImages:
    """The images among the tokens of a context, whose places are not its positions after them.

    The last one may be held in part: it is run when all its tokens are there.
    """

    def __init__(self, vision: Vision) -> None:
        self.vision = vision
        self._held: list[tuple[int, Chunk]] = []
        """Each with the place of its first token."""

    def ran(self, length: int) -> int:
        """How many of so many tokens the engine holds: all but those of an image in part."""
        for start, chunk in reversed(self._held):
            if start < length < start + len(chunk.tokens):
                return start
        return length

    def position(self, length: int) -> int:
        """Position after so many tokens, the last of which is not within an image."""
        ended = (one for start, one in self._held if start + len(one.tokens) <= length)
        return length - sum(len(one.tokens) - one.span for one in ended)

    def cut(self, length: int) -> None:
        self._held = [(start, one) for start, one in self._held if start < length]

    def divided(self, tokens: Sequence[int], held: int, group: int, block: int) -> list[Pass]:
        """Note the images in tokens that follow held ones, and find the passes over them all.

        Tokens beside an image are computed alike whatever else is in the call, as far as kernels
        are alike for whole groups and, in longer passes, for whole blocks from its start on.

        Raises:
            ModelError: an image is not known; nothing is noted.
        """
        at, end = self.ran(held), held + len(tokens)
        passes: list[Pass] = []
        noted = [(start, one) for start, one in self._held if start < at]
        while at < end:
            is_begun = at < held
            if is_begun or tokens[at - held] >= IMAGE_TOKENS:
                chunk = self._held[-1][1] if is_begun else self.vision.chunk(tokens[at - held])
                upto = min(at + len(chunk.tokens), end)
                since = max(at, held)
                if (
                    tuple(tokens[since - held : upto - held])
                    != chunk.tokens[since - at : upto - at]
                ):
                    raise ModelError("an image cannot be read", "its tokens are those of others")
                noted.append((at, chunk))
                passes.append((at, upto, chunk))
            else:
                following = (n for n, one in enumerate(tokens[at - held :]) if one >= IMAGE_TOKENS)
                upto = at + next(following, end - at)
                cuts = {at, upto}
                for size in (group, block) if block else ():
                    cuts.add(held - (held - at) // size * size if at > held else at)
                    cuts.add(held + (upto - held) // size * size if upto < end else upto)
                places = sorted(cut for cut in cuts if at <= cut <= upto)
                passes += [(*ends, None) for ends in pairwise(places)]
            at = upto
        self._held = noted
        return passes

    def restored(self, tokens: Sequence[int]) -> None:
        """Note the images in all tokens of a context. Raises ModelError: one is not known."""
        self.cut(0)
        self.divided(tokens, 0, 1, 0)
