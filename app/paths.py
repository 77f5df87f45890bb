"""Files and folders of specchat on this system, readable by their owner only."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from platformdirs import PlatformDirs

HOME_VARIABLE = "SPECCHAT_HOME"


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders by purpose, created when first needed."""

    config: Path
    data: Path
    cache: Path

    @classmethod
    def of_this_user(cls) -> Self:
        """The system's standard folders, or folders below SPECCHAT_HOME if that is set."""
        home = os.environ.get(HOME_VARIABLE)
        if home:
            root = Path(home).expanduser().absolute()
            return cls(root / "config", root / "data", root / "cache")
        usual = PlatformDirs("specchat", appauthor=False)
        return cls(usual.user_config_path, usual.user_data_path, usual.user_cache_path)

    @property
    def bandwidth(self) -> Path:
        """Measured memory bandwidth."""
        return self.cache / "bandwidth"

    @property
    def disk_speeds(self) -> Path:
        """Measured speeds of reading models' files."""
        return self.cache / "disk-speeds.json"

    @property
    def agreed_models(self) -> Path:
        """Models that the user agreed to have read from disk."""
        return self.data / "streamed-models.json"

    @property
    def plain_replies(self) -> Path:
        """Speeds of plain replies, by model and runner."""
        return self.cache / "plain-replies"

    @property
    def read_ahead(self) -> Path:
        """Processor time of reading ahead, used and wasted."""
        return self.data / "read-ahead.json"

    @property
    def own_names(self) -> tuple[str, ...]:
        """Prefixes of the names of all files that specchat writes to its folders."""
        files = (
            self.settings, self.models, self.downloads, self.recipes, self.acceptance,
            self.retrieval, self.ngrams, self.history, self.unsent, self.cleared, self.last_error,
            self.last_model, self.self_drafts, self.calibrations, self.tuning, self.saved_states,
            self.agreed_models, self.disk_speeds, self.findings, self.bandwidth,
            self.plain_replies, self.proofs, self.read_ahead, self.cuda_build,
        )  # fmt: skip
        names = [path.with_suffix("").name for path in files]
        return (*names, *(f".{name}" for name in names))

    @property
    def models(self) -> Path:
        """The folder for the user's own GGUF files, available by name."""
        return self.data / "models"

    @property
    def downloads(self) -> Path:
        """The list of files in the hub's shared cache that specchat downloaded."""
        return self.data / "downloads.json"

    @property
    def self_drafts(self) -> Path:
        """Self-drafters made from a model."""
        return self.cache / "self-drafts"

    @property
    def calibrations(self) -> Path:
        """Measured costs of passes over several tokens."""
        return self.cache / "calibration"

    @property
    def cuda_build(self) -> Path:
        """Compilers, sources and objects of the CUDA build of llama.cpp."""
        return self.cache / "cuda"

    @property
    def proofs(self) -> Path:
        """Models that ran in a child process without a crash, and so may be loaded."""
        return self.cache / "proofs.json"

    @property
    def tuning(self) -> Path:
        """Measurements of recipes for self-drafters, until the best one is known."""
        return self.cache / "tuning"

    @property
    def recipes(self) -> Path:
        """The best recipe for a self-drafter of each tuned model."""
        return self.data / "recipes"

    @property
    def saved_states(self) -> Path:
        """Prompt caches of conversations."""
        return self.cache / "states"

    @property
    def acceptance(self) -> Path:
        """Measured acceptance of each drafter, by target."""
        return self.data / "acceptance"

    @property
    def findings(self) -> Path:
        """Results of automatic drafter trials, by target and runner."""
        return self.cache / "findings"

    @property
    def retrieval(self) -> Path:
        """The index of earlier chats, a folder for each vocabulary."""
        return self.data / "retrieval"

    @property
    def ngrams(self) -> Path:
        """Statistics of the ngram drafter, by model."""
        return self.data / "ngrams"

    @property
    def history(self) -> Path:
        """The database of chats."""
        return self.data / "chats.sqlite3"

    @property
    def cleared(self) -> Path:
        """Texts that were cleared from the prompt without being sent."""
        return self.data / "cleared.json"

    @property
    def unsent(self) -> Path:
        """Unsent text of the prompt."""
        return self.data / "unsent.txt"

    @property
    def last_error(self) -> Path:
        """The traceback of the last internal error."""
        return self.data / "last-error.txt"

    @property
    def settings(self) -> Path:
        """The settings file, which may not exist."""
        return self.config / "config.toml"

    @property
    def last_model(self) -> Path:
        """The name of the model used last."""
        return self.data / "last-model"


def own_entries(paths: Paths) -> Iterator["os.DirEntry[str]"]:
    """Files and folders that specchat wrote, without links and the models folder."""
    own = paths.own_names
    for folder in dict.fromkeys((paths.config, paths.data, paths.cache)):
        for entry in entries(folder):
            is_own = entry.name.startswith(own) and not entry.is_symlink()
            if is_own and Path(entry.path) != paths.models:
                yield entry


def entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    """Entries of a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_DEEPEST = 3


def tighten(paths: Paths) -> None:
    """Make specchat's files and folders readable by their owner only, where possible.

    Links, the models folder, and files of other users or programs are left alone.
    """
    if os.name == "nt":  # user profiles are private on Windows
        return
    own = paths.own_names
    for folder in dict.fromkeys((paths.config, paths.data, paths.cache)):
        if all(entry.name.startswith(own) for entry in entries(folder)):
            _restrict(folder)
    for entry in own_entries(paths):
        _tighten(entry, _DEEPEST)


def _tighten(entry: "os.DirEntry[str]", depth: int) -> None:
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False):
            _restrict(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False) and depth:
            _restrict(Path(entry.path))
            for inner in entries(Path(entry.path)):
                _tighten(inner, depth - 1)


def _restrict(path: Path) -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError):
        status = path.lstat()
        is_own = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
        if is_own and status.st_mode & _OTHERS:
            path.chmod(status.st_mode & stat.S_IRWXU)  # programs among them stay so
