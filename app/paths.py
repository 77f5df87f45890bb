"""Where specchat keeps things on this system."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from platformdirs import PlatformDirs

HOME_VARIABLE = "SPECCHAT_HOME"


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders by purpose; none is made before it is needed."""

    config: Path
    data: Path
    cache: Path

    @classmethod
    def of_this_user(cls) -> Self:
        """The system's usual places, or all below SPECCHAT_HOME where that is set."""
        home = os.environ.get(HOME_VARIABLE)
        if home:
            root = Path(home).expanduser().absolute()
            return cls(root / "config", root / "data", root / "cache")
        usual = PlatformDirs("specchat", appauthor=False)
        return cls(usual.user_config_path, usual.user_data_path, usual.user_cache_path)

    @property
    def bandwidth(self) -> Path:
        """What the memory of this machine was measured to give."""
        return self.cache / "bandwidth"

    @property
    def own_names(self) -> tuple[str, ...]:
        """How the names of all begin that specchat keeps in its three folders."""
        kept = (
            self.settings, self.models, self.downloads, self.recipes, self.acceptance,
            self.retrieval, self.ngrams, self.history, self.unsent, self.last_error,
            self.last_model, self.self_drafts, self.calibrations, self.tuning, self.saved_states,
            self.findings, self.bandwidth, self.proofs, self.plotting,
        )  # fmt: skip
        names = [path.with_suffix("").name for path in kept]
        return (*names, *(f".{name}" for name in names))

    @property
    def models(self) -> Path:
        """Where the user puts GGUF files to call them by name."""
        return self.data / "models"

    @property
    def downloads(self) -> Path:
        """Says which files of the hub's shared cache were downloaded by specchat."""
        return self.data / "downloads.json"

    @property
    def self_drafts(self) -> Path:
        """Where drafters made from a model are kept."""
        return self.cache / "self-drafts"

    @property
    def calibrations(self) -> Path:
        """What passes over several tokens were measured to cost."""
        return self.cache / "calibration"

    @property
    def plotting(self) -> Path:
        """Font cache of matplotlib, which draws the charts of a bench."""
        return self.cache / "matplotlib"

    @property
    def proofs(self) -> Path:
        """Which models ran here in a child process, and may be loaded by this one."""
        return self.cache / "proofs.json"

    @property
    def tuning(self) -> Path:
        """What was measured of recipes of self-drafters, until the best one is found."""
        return self.cache / "tuning"

    @property
    def recipes(self) -> Path:
        """The recipes of self-drafters that tuning found, by model."""
        return self.data / "recipes"

    @property
    def saved_states(self) -> Path:
        """Prompt caches of conversations."""
        return self.cache / "states"

    @property
    def acceptance(self) -> Path:
        """How often each drafter was right, by target."""
        return self.data / "acceptance"

    @property
    def findings(self) -> Path:
        """What became of drafters that were tried unasked, by target and what runs it."""
        return self.cache / "findings"

    @property
    def retrieval(self) -> Path:
        """The index of earlier chats, a folder for each vocabulary."""
        return self.data / "retrieval"

    @property
    def ngrams(self) -> Path:
        """What the drafter ngram learned of what each model says."""
        return self.data / "ngrams"

    @property
    def history(self) -> Path:
        """The database of chats."""
        return self.data / "chats.sqlite3"

    @property
    def unsent(self) -> Path:
        """What stood in the prompt when the app was left."""
        return self.data / "unsent.txt"

    @property
    def last_error(self) -> Path:
        """The traceback of the last fault of specchat itself."""
        return self.data / "last-error.txt"

    @property
    def settings(self) -> Path:
        """The settings file, which need not exist."""
        return self.config / "config.toml"

    @property
    def last_model(self) -> Path:
        """Holds the name of the model used last."""
        return self.data / "last-model"
