"""Which hub is asked, where its files are kept, and how patiently it is asked."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_HUB = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Everything a download depends on but its own request."""

    endpoint: str
    cache: Path
    """The cache of huggingface_hub, shared with every other program that uses it."""
    receipts: Path
    """The file that says what specchat itself put into the cache."""
    offline: bool = False
    timeout: float = 10.0
    """Seconds of silence after which a connection counts as cut."""
    attempts: int = 6
    """How often a file is asked for before giving up, counted anew whenever bytes come."""
    first_wait: float = 1.0
    """Seconds before the second attempt; each further wait is twice as long."""
    window: float = 60.0
    """Seconds within which an answer has to begin, and then to bring window_bytes each time."""
    window_bytes: int = 60_000
    """With the window 1 kB/s: a fifth of a dial-up line's. A gigabyte would take twelve days."""

    @classmethod
    def of_environment(cls, receipts: Path, offline: bool = False) -> Self:
        """As the environment says, in the variables of huggingface_hub."""
        off = any(_is_true(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        endpoint = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        return cls(endpoint, hub_cache(), receipts, offline or off)

    def folder(self, repository: str) -> Path:
        """Where the cache keeps a repository: its folders blobs, snapshots and refs."""
        return self.cache / f"models--{repository.replace('/', '--')}"


def hub_cache() -> Path:
    """The cache's folder by the rules of huggingface_hub, without importing it."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    chosen = os.path.expandvars(named or home / "hub")
    return Path(chosen).expanduser().absolute()


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in _TRUE
