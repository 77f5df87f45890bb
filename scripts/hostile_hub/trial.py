"""Runs a real download from a hostile hub, and checks its effects."""

import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub

from backends.base import SpecchatError
from models.hub import DownloadJob, DownloadRequest, HubSettings
from scripts.hostile_hub.modes import cache_modes, file_modes, listing_modes
from scripts.hostile_hub.server import (
    COMMIT,
    CONTENT,
    FILE,
    REPOSITORY,
    HostileHub,
    Mode,
    digest,
    serving,
)

MODES = (*listing_modes(), *file_modes(), *cache_modes())

_LONGEST_SECONDS = 20.0
_LONGEST_ERROR = 1500
_MOST_MEMORY = 64 << 20
_DIGESTS = {digest(FILE, CONTENT)}
_ALLOWED = re.compile(
    r"CACHEDIR\.TAG|\.locks(/models--[\w-]+(/specchat-[0-9a-f]{64}\.lock)?)?"
    r"|models--maker--Small-GGUF(/(blobs(/[0-9a-f]{64}(\.specchat\.incomplete)?)?"
    rf"|refs(/main)?|snapshots(/{COMMIT}(/{re.escape(FILE)})?)?))?"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a download from a hostile hub."""

    mode: Mode
    outcome: str
    received_bytes: int
    seconds: float
    memory_bytes: int
    """By how much the process's peak grew."""
    faults: tuple[str, ...]
    """What must not be; empty where all is well."""


def try_mode(mode: Mode, root: Path) -> Verdict:
    """Download from a hub that lies in this way, below an empty folder."""
    outside = root / "outside"
    outside.mkdir(parents=True)
    (outside / "precious").write_bytes(b"precious")
    hub = HostileHub(outside, root / "cache")
    with serving(hub), _token():
        mode.lie(hub)
        before, planted, memory = _tree(root), _tree(hub.cache), _peak_bytes()
        settings = HubSettings(
            hub.endpoint,
            hub.cache,
            root / "receipts.json",
            timeout=5.0,
            window=1.0 if mode.is_slow else 5.0,
            window_bytes=1000,
            attempts=2,
            first_wait=0.01,
        )
        began = time.monotonic()
        job = DownloadJob(DownloadRequest(REPOSITORY), settings)
        ended = job.wait(_LONGEST_SECONDS)
        seconds = time.monotonic() - began
    error = _error(job) if ended else None
    outcome = "it goes on and on" if not ended else str(error) if error else "the right file"
    grown = _peak_bytes() - memory
    faults = [
        *_outcome_faults(mode, job, error, ended),
        *_outside_faults(before, _tree(root)),
        *_cache_faults(hub.cache, planted),
    ]
    if hub.sent_bytes > mode.most_bytes:
        faults.append(f"{hub.sent_bytes:,} bytes were received")
    if hub.foreign_tokens:
        faults.append("the token went to another host")
    if grown > _MOST_MEMORY:
        faults.append(f"{grown:,} bytes of memory were taken")
    return Verdict(mode, outcome, hub.sent_bytes, seconds, grown, tuple(faults))


def _error(job: DownloadJob) -> SpecchatError | None:
    try:
        job.result()
    except SpecchatError as error:
        return error
    return None


def _outcome_faults(
    mode: Mode, job: DownloadJob, error: SpecchatError | None, ended: bool
) -> Iterator[str]:
    if not ended:
        yield f"it did not end within {_LONGEST_SECONDS:g} seconds"
    elif error is None:
        path = job.result().path
        if mode.says is not None:
            yield f"no error says {mode.says!r}"
        if path.read_bytes() != CONTENT:
            yield "another file came"
        if not path.resolve().is_relative_to(path.parents[3].resolve()):
            yield "the file lies outside the cache"
        yield from _not_found_by_others(path)
    else:
        if mode.says is None or not re.search(mode.says, str(error)):
            yield f"the error is another one: {str(error)[:200]!r}"
        if error.what.startswith("the download of"):
            yield "nobody foresaw this error"
        if len(str(error)) > _LONGEST_ERROR or not str(error).replace("\n", "").isprintable():
            yield "the error's text is not fit to print"


def _not_found_by_others(path: Path) -> Iterator[str]:
    """Whether the client of the hub finds the file where it looks for it itself."""
    cache = path.parents[3]
    for revision in (None, COMMIT):
        theirs = huggingface_hub.try_to_load_from_cache(
            REPOSITORY, FILE, revision=revision, cache_dir=cache
        )
        if theirs != str(path):
            yield f"huggingface_hub finds {theirs}"
    if huggingface_hub.scan_cache_dir(cache).warnings:
        yield "huggingface_hub calls the cache damaged"


def _outside_faults(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for path in sorted(before.keys() | after.keys()):
        inside = path in ("receipts.json", "receipts.lock") or path.split("/")[0] == "cache"
        if not inside and before.get(path) != after.get(path):
            yield f"{path} was changed"


def _cache_faults(cache: Path, planted: dict[str, str]) -> Iterator[str]:
    """What came into the cache under a name that is not ours, or with unchecked bytes."""
    after = _tree(cache)
    for name, what in after.items():
        if planted.get(name) == what:
            continue  # it was there, and is as it was
        if not _ALLOWED.fullmatch(name):
            yield f"{name} is in the cache"
        path = cache / name
        is_content = path.parent.name in ("blobs", COMMIT) and not name.endswith(".incomplete")
        if is_content and path.is_file():
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found not in _DIGESTS or (path.parent.name == "blobs" and path.name != found):
                yield f"{name} was not checked"


def _tree(root: Path) -> dict[str, str]:
    """What lies below a folder, by path: kind, mode, and content or where a link leads."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[path.relative_to(root).as_posix()] = _state(path)
    return found


def _state(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)}"
    content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    return f"{status.st_mode:o} {hashlib.sha256(content).hexdigest()}"


@contextmanager
def _token() -> Generator[None]:
    """A token that no other host may see, and no proxy on the way."""
    wanted = {"HF_TOKEN": "hf_secret", "NO_PROXY": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _peak_bytes() -> int:
    """Peak memory of this process; 0 on Windows, where it is not measured."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
