"""Self-drafters: files made from the target itself, built once and kept in the cache."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.base import DraftUnavailableError, ModelInfo, Rollback
from backends.gguf_header import read_header
from models.content_hash import content_hash
from models.recipe import Recipe

Progress = Callable[[int, int], None]
"""Called with layers done and in all."""

_STALE_SECONDS = 3600
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class SelfDrafts:
    """The store of self-drafters below a cache folder."""

    folder: Path

    def get(self, info: ModelInfo, recipe: Recipe, progress: Progress) -> Path:
        """The file of a drafter made from a target by a recipe, built if it is not there yet.

        Raises:
            DraftUnavailableError: it cannot be built or written here.
            UsageError: the recipe does not fit the model.
        """
        recipe.check(info.name, info.n_layers)
        _require_uniform(info, recipe)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            digest = content_hash(info.path, self.folder / "hashes.json")
            stem = f"{digest[:24]}-{recipe.slug}"
            path = self._find(stem) or self._build(info.path, stem, recipe, progress)
        except OSError as error:
            raise DraftUnavailableError(
                "the self-drafter cannot be kept",
                f"{self.folder}: {error.strerror or error}",
                "Free some space or set SPECCHAT_HOME to a folder that can be written.",
            ) from error
        return path

    def made(self, info: ModelInfo, recipe: Recipe) -> Path | None:
        """The file of a drafter made before, None where there is none."""
        if not any(self.folder.glob(f"*-{recipe.slug}-*.gguf")):
            return None  # without reading all of the target
        digest = content_hash(info.path, self.folder / "hashes.json")
        return self._find(f"{digest[:24]}-{recipe.slug}")

    def _find(self, stem: str) -> Path | None:
        """A file that has the size its name tells; others are damaged and removed."""
        for path in self.folder.glob(f"{stem}-*.gguf"):
            size = path.stem.rpartition("-")[2]
            if size == str(path.stat().st_size):
                return path
            path.unlink()
        return None

    def _build(self, source: Path, stem: str, recipe: Recipe, progress: Progress) -> Path:
        """Write to a temporary file beside the place and move it there when it is whole."""
        try:
            from backends.llamacpp.requantize import requantize
        except (ImportError, OSError, RuntimeError) as error:
            raise DraftUnavailableError(
                "no self-drafter can be made of a GGUF file here",
                f"llama.cpp, which would make it, cannot be started: {error}",
            ) from error
        self._remove_stale()
        descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=_PARTIAL)
        os.close(descriptor)
        partial = Path(name)
        try:
            for done, total in requantize(
                source, partial, recipe.quantization, recipe.skipped_layers
            ):
                progress(done, total)
            return partial.replace(self.folder / f"{stem}-{partial.stat().st_size}.gguf")
        except DraftUnavailableError as error:
            free = shutil.disk_usage(self.folder).free
            if free < source.stat().st_size:
                error.why = f"the disk is full ({free / 1e6:.0f} MB free below {self.folder})"
            raise
        finally:
            partial.unlink(missing_ok=True)

    def _remove_stale(self) -> None:
        for partial in self.folder.glob(f"*{_PARTIAL}"):
            with contextlib.suppress(OSError):
                if time.time() - partial.stat().st_mtime > _STALE_SECONDS:
                    partial.unlink()


def _require_uniform(info: ModelInfo, recipe: Recipe) -> None:
    """Layers can only be cut where all are alike; cutting shifts the numbers of the rest."""
    if not recipe.skipped_layers:
        return
    window = read_header(info.path).integer("attention.sliding_window")
    if info.rollback is not Rollback.ANY or window:
        raise DraftUnavailableError(
            f"{info.name} cannot skip layers", "its layers are of several kinds, in a fixed order"
        )
