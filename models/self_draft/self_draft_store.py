"""Store of self-drafters: files made from a target, built once and kept in the cache."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.base import DiskFullError, DraftUnavailableError, ModelInfo
from backends.base.safe_files import make_private_folder, put_in_place, remove_leftovers
from backends.files.gguf_header import parts, read_model
from backends.hardware.host import available_memory
from models.byte_sizes import gigabytes
from models.metadata.identity import content_hash, known_hash
from models.self_draft.recipe import Recipe, require_cut, weights_made

Progress = Callable[[int, int], None]
"""Called with tensors done and in total."""

_FLOAT_BYTES = 4
_LARGEST_BITS = 8.5
"""Bits of a weight in the largest format made, q8_0."""

_PROCESS_BYTES = 64_000_000
"""Of the process that requantizes, without weights."""

_SPARE = 1.2
"""Margin: which matrices keep more bits differs between architectures. A guess; not measured."""


@dataclass(frozen=True, slots=True)
class SelfDrafts:
    folder: Path

    def get(self, info: ModelInfo, recipe: Recipe, progress: Progress) -> Path:
        """File of the drafter that a recipe makes from a target, built if missing.

        It is the target's own file if the recipe changes no weights: the number of experts is set
        on loading.

        Raises:
            DiskFullError: there is too little disk space.
            DraftUnavailableError: it cannot be built or written here.
            UsageError: the recipe does not fit the model.
        """
        recipe.check(info.name, info.n_layers, info.active_experts)
        require_cut(info, recipe.skipped_layers)
        recipe = recipe.of_weights
        if not recipe.text:
            return info.path
        try:
            make_private_folder(self.folder)
            digest = content_hash(info.path, self.folder / "hashes.json")
            stem = f"{digest[:24]}-{recipe.slug}"
            path = self._find(stem) or self._build(info, stem, recipe, progress)
        except OSError as error:
            raise DraftUnavailableError(
                "the self-drafter cannot be kept",
                f"{self.folder}: {error.strerror or error}",
                "Free some space or set SPECCHAT_HOME to a folder that can be written.",
            ) from error
        return path

    def made(self, info: ModelInfo, recipe: Recipe) -> Path | None:
        """File of a drafter built before, None if there is none."""
        recipe = recipe.of_weights
        if not recipe.text:
            return info.path
        if not any(self.folder.glob(f"*-{recipe.slug}-*.gguf")):
            return None  # avoids hashing the target
        digest = content_hash(info.path, self.folder / "hashes.json")
        return self._find(f"{digest[:24]}-{recipe.slug}")

    def all_made(self, target: Path) -> list[Path]:
        """Files of all drafters built before from the model in a file; takes milliseconds.

        Raises:
            OSError: the target's files or the folder cannot be read.
        """
        digest = known_hash(target, self.folder / "hashes.json")
        if digest is None:
            return []
        return [
            path
            for path in sorted(self.folder.glob(f"{digest[:24]}-*.gguf"))
            if path.stem.rpartition("-")[2] == str(path.stat().st_size)
        ]

    def _find(self, stem: str) -> Path | None:
        """File whose size matches its name; others are damaged and removed."""
        for path in self.folder.glob(f"{stem}-*.gguf"):
            recipe, _, size = path.stem.rpartition("-")
            if recipe != stem:
                continue  # another recipe with the same start
            if size == str(path.stat().st_size):
                return path
            path.unlink()
        return None

    def _build(self, info: ModelInfo, stem: str, recipe: Recipe, progress: Progress) -> Path:
        with self.temporary() as partial:
            self.write(info.path, partial, recipe, progress)
            return put_in_place(partial, self.folder / f"{stem}-{partial.stat().st_size}.gguf")

    @contextmanager
    def temporary(self) -> Generator[Path]:
        """New temporary file, removed after the block unless it was moved.

        Raises:
            OSError: the folder cannot be written.
        """
        make_private_folder(self.folder)
        remove_leftovers(self.folder)
        suffix = f".partial.{os.getpid()}"
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=suffix)
        os.close(descriptor)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def write(self, source: Path, place: Path, recipe: Recipe, progress: Progress) -> None:
        """Make a drafter from a target, or from a file made from it, at a path in this folder.

        Raises:
            DiskFullError: there is too little disk space.
            DraftUnavailableError: it cannot be made from this model, or not here.
            ModelError: the model cannot be read.
        """
        try:
            from backends.llamacpp.requantize import requantize
        except (ImportError, OSError, RuntimeError) as error:
            raise DraftUnavailableError(
                "no self-drafter can be made from a GGUF file here",
                f"llama.cpp, which would make it, cannot be started: {error}",
            ) from error
        needed = round(_SPARE * expected_bytes(source, recipe))
        self._require_room(needed)
        if recipe.quantization is not None:
            _require_memory(source, recipe)
        try:
            steps = requantize(source, place, recipe.quantization, recipe.skipped_layers)
            for done, total in steps:
                progress(done, total)
        except DraftUnavailableError:
            self._require_room(max(needed - place.stat().st_size, needed // 10))
            raise

    def _require_room(self, needed: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise DiskFullError(
                "there is too little disk space for the self-drafter",
                f"the disk is full ({free / 1e6:,.0f} MB free below {self.folder}, "
                f"{needed / 1e6:,.0f} MB needed)",
                "Free some space or set SPECCHAT_HOME to a folder on another disk.",
            )


def _require_memory(source: Path, recipe: Recipe) -> None:
    """Refuse to requantize where there is too little memory: Linux would end the process.

    Weights are read tensor by tensor; llama.cpp holds one, in floats and in the new format. The
    padded 1.1B body, whose largest tensor has 101 million weights, took 567 MB to q4_0 and q2_k.
    """
    _, tensors = read_model(source)
    largest = max((tensor.parameters for tensor in tensors), default=0)
    needed = round(largest * (_FLOAT_BYTES + _LARGEST_BITS / 8)) + _PROCESS_BYTES
    if needed > (free := available_memory()):
        raise DraftUnavailableError(
            f"no drafter can be made from {source.name} in {recipe.text}",
            f"its largest tensor takes {gigabytes(needed)} of memory while it is requantized; "
            f"{gigabytes(free)} are free",
        )


def expected_bytes(source: Path, recipe: Recipe) -> int:
    """Approximate size of the file that a recipe makes, with metadata as in its source."""
    stored = sum(file.stat().st_size for file in parts(source))
    weights = sum(tensor.stored_bytes for tensor in read_model(source)[1])
    return stored - weights + weights_made(source, recipe)


class CandidateFiles:
    """Makes candidates of a target in the folder of its self-drafters.

    A requantized file is kept while candidates with fewer layers are cut from it, which takes a
    fraction of the time. close removes that file.
    """

    def __init__(
        self, store: SelfDrafts, info: ModelInfo, progress: Callable[[Recipe], Progress]
    ) -> None:
        self._store = store
        self._info = info
        self._progress = progress
        self._body = Recipe()
        self._body_file = info.path
        self._held = ExitStack()

    @contextmanager
    def made(self, recipe: Recipe) -> Generator[Path]:
        """Make the file of a recipe, valid within the block. Raises as SelfDrafts.get does."""
        info = self._info
        recipe.check(info.name, info.n_layers, info.active_experts)
        require_cut(info, recipe.skipped_layers)
        body = self._of(recipe.of_weights.body)
        if not recipe.skipped_layers:
            yield body
            return
        cut = Recipe(None, recipe.skipped_layers)
        with self._temporary() as place:
            self._store.write(body, place, cut, self._progress(recipe))
            yield place

    def close(self) -> None:
        self._held.close()
        self._body, self._body_file = Recipe(), self._info.path

    def _of(self, body: Recipe) -> Path:
        """File of a recipe with every layer, made unless it is the kept one."""
        if body != self._body:
            self.close()
            with ExitStack() as stack:
                place = stack.enter_context(self._temporary())
                self._store.write(self._info.path, place, body, self._progress(body))
                self._held = stack.pop_all()
            self._body, self._body_file = body, place
        if body.text:
            os.utime(self._body_file)  # so that no other process removes it as a leftover
        return self._body_file

    @contextmanager
    def _temporary(self) -> Generator[Path]:
        try:
            with self._store.temporary() as place:
                yield place
        except OSError as error:
            raise DraftUnavailableError(
                "no candidate can be kept", f"{self._store.folder}: {error.strerror or error}"
            ) from error
