"""The embedding model that the settings name, with the marks that it wants of texts."""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends.base import Model, ModelError, SpecchatError
from backends.engines.model_loading import open_embedder
from models.metadata.identity import fingerprint
from models.reference import at_hand, resolve

if TYPE_CHECKING:
    from backends.llamacpp.embedding import Embedder

_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_MARKS = {
    "nomic-bert": ("search_query: ", "search_document: "),
    "gemma-embedding": ("task: search result | query: ", "title: none | text: "),
    "qwen3": (f"Instruct: {_TASK}\nQuery:", ""),
}
"""What a question and a passage begin with, by architecture, as the models' cards tell."""

_LOOK_AGAIN_SECONDS = 0.2
"""While the processor may not be taken."""


class Embedding:
    """An embedding model by name, for any thread, loaded when it is first used.

    fault: why it cannot be used, once that is known. most_tokens: of a text that are read; passages
    have about 300. is_free: whether the processor may be taken for passages.
    """

    def __init__(
        self,
        name: str,
        paths: Paths,
        threads: int,
        most_tokens: int = 512,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name, self.fault = Path(name).name, ""
        self._given, self._is_free = name, is_free
        self._paths, self._threads, self._most_tokens = paths, threads, most_tokens
        self._lock, self._is_closed = threading.RLock(), threading.Event()
        self._model: Model | None = None
        self._embedders: list[Embedder] = []
        """For passages, and one of its own for questions, so that none waits for passages."""
        self._identity, self._marks = "", ("", "")
        self._of_question = lru_cache(16)(self._embedded_question)

    def load(self) -> "Embedder":
        """What embeds passages, once the processor may be taken.

        Raises:
            SpecchatError: it is not here, no embedding model, closed, or cannot be loaded.
        """
        while not self._is_free() and not self._is_closed.wait(_LOOK_AGAIN_SECONDS):
            pass
        with self._lock:
            if self._is_closed.is_set():
                raise ModelError("the embedding model is closed")
            try:
                if not self._embedders:
                    path = at_hand(resolve(self._given, self._paths.models)).path
                    loader = CheckedLoader(self._paths, lambda _: None)
                    self._model = loader.load_embedding_model(path, self._threads)
                    self._identity = fingerprint(path)
                    self._marks = _MARKS.get(self._model.info.architecture, self._marks)
                    most = self._most_tokens
                    self._embedders = [open_embedder(self._model, most) for _ in range(2)]
            except SpecchatError as error:
                self.fault = f"the embedding model cannot be used: {error.summary}"
                raise
            return self._embedders[0]

    @property
    def identity(self) -> str:
        """What tells its vectors from those of others. Raises SpecchatError: as load does."""
        self.load()
        return self._identity

    def of_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raises SpecchatError: as load does, or a pass failed."""
        return self.load().embed([f"{self._marks[1]}{text}" for text in texts])[0]

    def of_question(self, text: str) -> NDArray[np.float32] | None:
        """The vector of a question, None if the model is not loaded: a question waits for none."""
        try:
            return self._of_question(text) if self._embedders else None
        except (IndexError, SpecchatError):  # it was closed meanwhile
            return None

    def _embedded_question(self, text: str) -> NDArray[np.float32]:
        return self._embedders[1].embed([f"{self._marks[0]}{text}"])[0][0]

    def close(self) -> None:
        """Wait for the pass that runs, and free all."""
        self._is_closed.set()
        with self._lock:
            for one in (*self._embedders, *([self._model] if self._model else [])):
                one.close()
            self._embedders, self._model = [], None
