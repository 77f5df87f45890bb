"""Kinds of files: models of 2026, and heads beside their sound models."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.base import ModelError
from backends.files.gguf_header import read_header, require_distinct_tokens
from scripts.fuzzing.heads.head_child import HeadChild
from scripts.fuzzing.model_files import (
    ANSWERED,
    REFUSED_BY_CHECK,
    REFUSED_BY_ENGINE,
    STOPPED,
    Engine,
    Gguf,
)
from tests.fixtures.tiny.kinds import HEADS, MODELS, WRITERS

_TARGETS = {
    "eagle3": "llama",
    "dflash": "qwen3",
    "gemma4-assistant": "gemma4",
    "qwen35": "qwen35",
    "nemotron_h_moe": "nemotron_h_moe",
}
"""Models by architecture of a head."""


class RecentModels(Engine):
    """Models of 2026, loaded as by the app."""

    name = "recent-models"

    def samples(self, folder: Path) -> Sequence[bytes]:
        return [write(folder / f"{kind}.gguf").read_bytes() for kind, write in MODELS.items()]


class Heads(Gguf):
    """Heads beside sound models: checks, then a draft in a child process."""

    name = "heads"

    def samples(self, folder: Path) -> Sequence[bytes]:
        self._folder = TemporaryDirectory()  # the models are read as long as this worker lives
        self._child = HeadChild()
        for kind in _TARGETS.values():
            WRITERS[kind](self._target(kind))
        return [WRITERS[kind](folder / f"{kind}.gguf").read_bytes() for kind in HEADS]

    def _target(self, kind: str) -> Path:
        return Path(self._folder.name, f"{kind}.gguf")

    def read(self, path: Path) -> str:
        from backends.llamacpp.head_checks import checked_head

        try:
            target = self._target(_TARGETS.get(read_header(path).architecture, "llama"))
            checked_head(path, target)
            require_distinct_tokens(path)
        except ModelError:
            return REFUSED_BY_CHECK
        found = self._child.drafted(target, path)
        if found is None:
            return STOPPED
        return REFUSED_BY_ENGINE if isinstance(found, str) else ANSWERED
