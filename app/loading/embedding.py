"""The embedding model that the settings name: loaded when it is first used, with its own marks."""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends.base import Model, ModelError, OutOfMemoryError, SpecchatError
from backends.engines.model_loading import open_embedder
from backends.hardware.host import available_memory
from models.metadata.identity import fingerprint, stored_bytes
from models.reference import at_hand, resolve

if TYPE_CHECKING:
    from backends.llamacpp.embedding import Embedder

Rows = NDArray[np.float32]

PASSAGE_TOKENS = 512
"""Of a passage that are read, which has about 300, and of a question."""

_NOMIC = "search_query: ", "search_document: "
_MARKS = {
    "nomic-bert": _NOMIC,
    "nomic-bert-moe": _NOMIC,
    "gemma-embedding": ("task: search result | query: ", "title: none | text: "),
    "qwen3": (
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
        "Query:",
        "",
    ),
}
"""What a question and a passage begin with, by architecture, as the models' cards tell."""

_QUESTIONS = 16


class Embedding:
    """An embedding model by name, for any thread.

    fault: why it cannot be used, once that is known. is_free: whether the processor may be taken
    for passages.
    """

    def __init__(
        self,
        name: str,
        paths: Paths,
        threads: int,
        most_tokens: int = PASSAGE_TOKENS,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.fault = ""
        self.is_free = is_free
        self._paths, self._threads, self._most_tokens = paths, threads, most_tokens
        self._lock = threading.RLock()
        self._model: Model | None = None
        self._passages: Embedder | None = None
        self._questions: Embedder | None = None
        self._identity, self._is_closed = "", False
        self._of_question = lru_cache(_QUESTIONS)(self._embedded_question)

    def load(self) -> "Embedder":
        """Load it, unless that was done.

        Raises:
            SpecchatError: it is not here, no embedding model, or cannot be loaded.
        """
        with self._lock:
            if self._is_closed:
                raise ModelError("the embedding model is closed")
            if self._passages is None:
                try:
                    self._passages = self._loaded()
                except SpecchatError as error:
                    self.fault = f"the embedding model cannot be used: {error.summary}"
                    raise
            return self._passages

    def _loaded(self) -> "Embedder":
        path = at_hand(resolve(self.name, self._paths.models)).path
        needed, free = stored_bytes(path), available_memory()
        if needed > free:
            why = f"it takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
            raise OutOfMemoryError(f"{self.name} cannot be loaded", why)
        loader = CheckedLoader(self._paths, lambda _: None)
        self._model = self._model or loader.load_embedding_model(path, self._threads)
        self._identity = fingerprint(path)
        # One of its own for questions, so that none waits for passages.
        self._questions = open_embedder(self._model, self._most_tokens)
        return open_embedder(self._model, self._most_tokens)

    @property
    def identity(self) -> str:
        """What tells its vectors from those of others. Raises SpecchatError: as load does."""
        self.load()
        return self._identity

    def of_passages(self, texts: Sequence[str]) -> Rows:
        """Raises SpecchatError: as load does, or a pass failed."""
        mark = self._marks[1]
        return self.load().embed([f"{mark}{text}" for text in texts]).rows

    def of_question(self, text: str) -> Rows | None:
        """The vector of a question, None if the model is not loaded: a question waits for none."""
        try:
            return self._of_question(text) if self._questions is not None else None
        except SpecchatError as error:
            self.fault = error.summary
            return None

    def _embedded_question(self, text: str) -> Rows:
        assert self._questions is not None
        return self._questions.embed([f"{self._marks[0]}{text}"]).rows[0]

    @property
    def _marks(self) -> tuple[str, str]:
        architecture = self._model.info.architecture if self._model is not None else ""
        return _MARKS.get(architecture, ("", ""))

    def close(self) -> None:
        """Wait for the pass that runs, and free all."""
        with self._lock:
            self._is_closed = True
            for one in (self._passages, self._questions, self._model):
                if one is not None:
                    one.close()
            self._passages = self._questions = self._model = None
