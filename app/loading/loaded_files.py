"""The files of a loaded model, which the engine goes on reading: they may be cut or removed."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backends.base import ModelError
from models.byte_sizes import size_text
from models.metadata.identity import model_files


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The model's files as they were when it was loaded."""

    path: Path
    files: tuple[tuple[Path, os.stat_result], ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """The present files of a model; those that cannot be read are left out."""
        files: list[tuple[Path, os.stat_result]] = []
        with suppress(OSError):
            files += [(file, file.stat()) for file in model_files(path)]
        return cls(path, tuple(files))

    def are_those_of(self, path: Path) -> bool:
        """Whether they are the files of the model at a path, unchanged since; false if unknown."""
        is_same = bool(self.files) and self.path.resolve() == path.resolve()
        return is_same and all(
            (now := _stat(file)) is not None
            and os.path.samestat(now, before)
            and (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
            for file, before in self.files
        )

    def check_whole(self) -> None:
        """Check that no file was cut: reading beyond its end would end the process.

        A file that was removed or replaced stays readable for the engine.
        """
        for file, before in self.files:
            now = _stat(file)
            if now and os.path.samestat(now, before) and now.st_size < before.st_size:
                present, whole = size_text(now.st_size), size_text(before.st_size)
                raise ModelError(
                    f"{self.path.name} cannot be used any more",
                    f"the file was truncated while in use ({present} of {whole} are left)",
                    "Get it again, or choose another model.",
                )

    def check_present(self) -> None:
        self.check_whole()
        if not all(_stat(file) for file, _ in self.files):
            raise ModelError(
                f"{self.path.name} cannot be loaded again",
                "the file was removed while in use",
                "Put it back, or choose another model.",
            )


def _stat(file: Path) -> os.stat_result | None:
    with suppress(OSError):
        return file.stat()
    return None
