"""Files and folders of specchat on this system, readable by their owner only."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from platformdirs import PlatformDirs

HOME_VARIABLE = "SPECCHAT_HOME"


class Paths:
    """Folders by purpose and what is in them; each is created when first needed."""

    def __init__(self, config: Path, data: Path, cache: Path) -> None:
        self.config, self.data, self.cache = config, data, cache
        self.settings, self.servers = config / "config.toml", config / "mcp.json"
        """The settings file and that of tool servers, which may not exist."""
        self.presets, self.prompts = config / "presets", config / "prompts"  # a file each
        self.agreed_models = data / "streamed-models.json"
        """Models that the user agreed to have read from disk."""
        self.read_ahead = data / "read-ahead.json"
        """Processor time of reading ahead, used and wasted."""
        self.models, self.suites = data / "models", data / "suites"
        """Folders of the user's own GGUF files, and of published suites' questions, by name."""
        self.downloads = data / "downloads.json"
        """The list of files in the hub's shared cache that specchat downloaded."""
        self.recipes = data / "recipes"
        """The best recipe for a self-drafter of each tuned model."""
        self.acceptance, self.remote_verdicts = data / "acceptance", data / "remote-verdicts.json"
        """Measured acceptance of each drafter, by target, and what checks of servers found."""
        self.retrieval, self.heads = data / "retrieval", data / "heads"
        """Indexes of earlier chats, a folder for each vocabulary; trained drafters, one each."""
        self.ngrams = data / "ngrams"
        """Statistics of the ngram drafter, by model."""
        self.history, self.indexes = data / "chats.sqlite3", data / "indexes"
        """The database of chats, and an index of the folder of each chat that has one."""
        self.cleared = data / "cleared.json"
        """Texts that were cleared from the prompt without being sent."""
        self.unsent, self.crash = data / "unsent.txt", data / "crash.txt"
        """Unsent text of the prompt; where native code ended the app, if it did."""
        self.last_model, self.last_error = data / "last-model", data / "last-error.txt"
        """The name of the model used last, and the traceback of the last internal error."""
        self.bandwidth = cache / "bandwidth"
        """Measured memory bandwidth."""
        self.disk_speeds = cache / "disk-speeds.json"
        """Measured speeds of reading models' files."""
        self.plain_replies, self.upgrades = cache / "plain-replies", cache / "upgrades.json"
        """Speeds of plain replies, by model and runner; speed and answers before a change."""
        self.self_drafts = cache / "self-drafts"
        """Self-drafters made from a model."""
        self.calibrations = cache / "calibration"
        """Measured costs of passes over several tokens."""
        self.vocabularies = cache / "vocabularies"
        """Vocabularies of models on other machines."""
        self.cuda_build = cache / "cuda"
        """Compilers, sources and objects of the CUDA build of llama.cpp."""
        self.proofs = cache / "proofs.json"
        """Models that ran in a child process without a crash, and so may be loaded."""
        self.tuning, self.training = cache / "tuning", cache / "training"
        """Measurements of recipes for self-drafters, until the best one is known, and unfinished
        trainings of drafters, a folder each, with answers of the model."""
        self.saved_states = cache / "states"
        """Prompt caches of conversations."""
        self.findings, self.benches = cache / "findings", cache / "benches"
        """Results of automatic drafter trials, by target and runner, and unfinished benches."""

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
    def answering(self) -> Path:
        """The mark of answers in progress, while a process trains."""
        return self.training / "answering"

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.config, self.data, self.cache)))

    @property
    def own_names(self) -> tuple[str, ...]:
        """Prefixes of the names of all files that specchat writes to its folders."""
        files: list[Path] = [path for path in vars(self).values() if path not in self.folders]
        names = [path.with_suffix("").name for path in files]
        return (*names, *(f".{name}" for name in names))


def own_entries(paths: Paths) -> Iterator["os.DirEntry[str]"]:
    """Files and folders that specchat wrote, without links and the models folder."""
    own = paths.own_names
    for folder in paths.folders:
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
    for folder in paths.folders:
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
