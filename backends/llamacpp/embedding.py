"""Texts as vectors: a context of an embedding model, in which several texts are read in a pass."""

import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from llama_cpp import llama_cpp as api
from numpy.typing import NDArray

from backends.base import ModelError, OutOfMemoryError, UsageError
from backends.chat.message import whole_characters
from backends.files.gguf_header import read_header
from backends.llamacpp import library
from backends.llamacpp.model import LlamaModel
from backends.llamacpp.sequences import Batch

_POOLINGS = (1, 2, 3)
"""Mean, first and last row, as llama.cpp numbers them; it aborts on unknown ones, and 4 ranks."""

_MOST_TEXTS = 16
"""Texts of one pass."""


class Embedder:
    """A context of a loaded model, for any thread. Source: examples/embedding of llama.cpp."""

    def __init__(self, model: LlamaModel, most_tokens: int = 512) -> None:
        """most_tokens: of a text, and of the texts of one pass; less if the model reads no more.

        Raises:
            UsageError: it is no embedding model.
            OutOfMemoryError: there is no memory for a context.
        """
        if read_header(model.info.path).integer("pooling_type") not in _POOLINGS:
            what, why = f"{model.info.name} is no embedding model", "no text becomes one vector"
            raise UsageError(what, why, "One is `specchat models pull nomic-embed-text`.")
        self.most_tokens = most = min(most_tokens, model.info.context_limit)
        self.width: int = api.llama_model_n_embd_out(model.pointer)
        self._encode = model.tokenizer.whole
        self._lock = threading.Lock()
        parameters = api.llama_context_default_params()
        # An encoder reads a text in one pass, and aborts if it has to in several.
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = most
        parameters.n_seq_max, parameters.kv_unified = min(_MOST_TEXTS, most), True
        parameters.n_threads = parameters.n_threads_batch = model.info.threads
        parameters.embeddings = parameters.no_perf = True
        parameters.op_offload = parameters.offload_kqv = False
        library.forget_log()
        pointer = api.llama_init_from_model(model.pointer, parameters)
        self._pointer: api.llama_context_p | None = pointer
        if pointer is None:
            what = f"{model.info.name} cannot read texts of {most:,} tokens"
            raise OutOfMemoryError(what, library.last_reason())
        self._memory = api.llama_get_memory(pointer)
        self._batch = Batch(most)

    def embed(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[int]]:
        """Rows of length 1, and the tokens of each text; of one with too many, the end is cut.

        Raises:
            ModelError: a pass failed, or the context is closed.
        """
        most, read = self.most_tokens, [self._encode(whole_characters(text)) for text in texts]
        # What is cut keeps the token that ends a text.
        kept = [one if len(one) <= most else [*one[: most - 1], one[-1]] for one in read]
        rows = np.zeros((len(kept), self.width), np.float32)
        with self._lock:
            for numbers in _passes(kept, most):
                rows[numbers] = self._pass([kept[number] for number in numbers])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0.0, norms, 1.0)
        return rows, list(map(len, read))

    def _pass(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        if self._pointer is None:
            raise ModelError("the embedding model is closed")
        batch, at = self._batch.batch, 0
        for sequence, tokens in enumerate(texts):
            at = self._batch.fill(at, tokens, len(tokens), 0, sequence)
        batch.n_tokens = at
        run = api.llama_encode
        if self._memory is not None:
            api.llama_memory_clear(self._memory, False)
            run = api.llama_decode
        library.forget_log()
        if run(self._pointer, batch):
            raise ModelError("the texts were not read", library.last_reason())
        found = (api.llama_get_embeddings_seq(self._pointer, one) for one in range(len(texts)))
        return np.array([np.ctypeslib.as_array(row, (self.width,)) for row in found])

    def close(self) -> None:
        with self._lock:
            if self._pointer is not None:
                api.llama_free(self._pointer)
                self._pointer = None


def _passes(texts: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """The numbers of texts that are read together; those of similar length, without empty ones."""
    numbers = sorted(filter(texts.__getitem__, range(len(texts))), key=lambda one: len(texts[one]))
    while numbers:
        ends = accumulate(len(texts[number]) for number in numbers[:_MOST_TEXTS])
        count = sum(end <= most for end in ends)
        yield numbers[:count]
        del numbers[:count]
