"""Folders where programs store models, from their environment variables and defaults."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from models.hub.hub_settings import hub_cache


@dataclass(frozen=True, slots=True)
class Places:
    """Model folders by owner, which need not exist."""

    models: Path
    hub_cache: Path
    lm_studio: tuple[Path, ...]
    llama_cpp: tuple[Path, ...]
    ollama: tuple[Path, ...]

    @classmethod
    def of_environment(cls, models: Path) -> Self:
        """Default folders, or those set in the programs' environment variables."""
        home = Path.home()
        caches = home / "Library/Caches" if sys.platform == "darwin" else _cache_folder()
        return cls(
            models,
            hub_cache(),
            (home / ".lmstudio/models", home / ".cache/lm-studio/models"),
            _named("LLAMA_CACHE") or (caches / "llama.cpp",),
            _named("OLLAMA_MODELS")
            or (home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")),
        )


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _named(variable: str) -> tuple[Path, ...]:
    value = os.environ.get(variable)
    return (Path(value).expanduser(),) if value else ()
