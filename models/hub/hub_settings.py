"""Settings of downloads: endpoint, cache, timeouts and retries."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_HUB = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class HubSettings:
    endpoint: str
    cache: Path
    """Cache of huggingface_hub, shared with other programs."""
    receipts: Path
    """File that records what specchat downloaded into the cache."""
    offline: bool = False
    timeout: float = 10.0
    """Seconds of silence after which a connection counts as lost."""
    attempts: int = 6
    """Most attempts for a file, counted anew whenever bytes arrive."""
    first_wait: float = 1.0
    """Seconds before the second attempt; each further wait doubles."""
    window: float = 60.0
    """Seconds in which a response must start, and then deliver window_bytes each time."""
    window_bytes: int = 60_000
    """With the window 1 kB/s: a fifth of a dial-up line's. A gigabyte would take twelve days."""

    @classmethod
    def of_environment(cls, receipts: Path, offline: bool = False) -> Self:
        variables = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        off = any(os.environ.get(name, "").upper() in _TRUE for name in variables)
        endpoint = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        return cls(endpoint, hub_cache(), receipts, offline or off)

    def folder(self, repository: str) -> Path:
        return self.cache / f"models--{repository.replace('/', '--')}"


def hub_cache() -> Path:
    """Cache folder by the rules of huggingface_hub, without importing it."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    chosen = os.path.expandvars(named or home / "hub")
    return Path(chosen).expanduser().absolute()
