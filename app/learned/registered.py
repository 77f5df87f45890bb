"""Heads and drafters that were trained for one model: here, or those that come with specchat.

Each is a folder with manifest.json, and a folder of its files, which the manifest names: those that
come with specchat are beside it. It drafts for the very file, and with the engine, that it was
trained with. It may have learned from chats: the manifest has salted hashes of these, so that it
can be told when one of them is removed.
"""

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.paths import Paths
from backends.base import ModelError, SpecchatError, UsageError
from backends.base.safe_files import explained, make_private_folder, replacing, write_whole
from backends.engines.backend_selection import LLAMACPP
from models.bounded_files import read_object
from models.metadata.identity import fingerprint
from models.metadata.trained_drafters import FoundDrafter, drafter_of, misfit

MANIFEST, BUNDLED = "manifest.json", Path(__file__).parent / "bundled"
DISTILLED = "distil"
"""The method of those that are models of their own, and no heads."""

_SCHEMA = 1

_PRIOR_PLACES = 3
"""Places of a draft whose acceptance is expected: later ones are seldom drafted."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A trained drafter.

    method: eagle3, hydra, medusa, distil or mtp. target: fingerprint of the model that it drafts
    for; model: its file when it was trained, by name. engine: its backend. folder: of its files.
    acceptance: shares of drafted tokens that were kept, by place in the draft, where all before
    them were; measured after training. made: date. salt, taught_by: of the chats it learned from.
    """

    name: str
    method: str
    target: str
    model: str
    engine: str
    folder: Path = Path()
    acceptance: tuple[float, ...] = ()
    made: str = ""
    salt: str = ""
    taught_by: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return drafting_file(self.folder, self.engine)

    @property
    def is_bundled(self) -> bool:
        return self.folder.parent == BUNDLED

    @property
    def prior(self) -> float | None:
        """Acceptance to expect of a token; None if it was not measured."""
        known = self.acceptance[:_PRIOR_PLACES]
        return sum(known) / len(known) if known else None

    @property
    def words(self) -> str:
        origin = "comes with specchat" if self.is_bundled else f"trained here on {self.made}"
        return f"{origin}, learnt from your chats" if self.taught_by else origin

    def refusal(self, target: Path, engine: str) -> str:
        """Why it is not used for a model; "" if it is."""
        if engine != self.engine:
            return f"it was trained with {self.engine}, and {engine} runs the model"
        with suppress(OSError):
            if fingerprint(target) == self.target:
                return ""
        if target.name == self.model:
            return f"it was trained for {self.model} before that file changed; train it anew"
        return f"it was trained for {self.model}, not for {target.name}"

    def missing(self, present: Iterable[str]) -> int:
        """How many chats that it learned from were removed since; present: marks of all chats."""
        kept = {_hashed(self.salt, mark) for mark in present} if self.taught_by else set[str]()
        return len(set(self.taught_by) - kept)


def drafting_file(folder: Path, engine: str) -> Path:
    """What an engine reads of the files of a drafter: one of them, or the folder itself for MLX."""
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files and engine == LLAMACPP else folder


REMOVED_CHAT = "a removed chat is still in it: train it anew, or remove it"


def drafter_name(model: str, method: str) -> str:
    """Of what is trained for a model: a file, or a name of the catalogue."""
    return _plain(f"{Path(model).name.removesuffix('.gguf')[:40]}-{method}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")


def register(
    paths: Paths, entry: Registered, files: Iterable[Path], chats: Iterable[str] = ()
) -> Registered:
    """Copy files of a drafter whose folder is not told yet; one of the same name is replaced.

    chats: marks of those it learned from, as History.marks gives them. A process that is killed
    leaves the one before or the new one, whole: which it is, the manifest decides.

    Raises:
        SpecchatError: they cannot be written.
    """
    name = _plain(entry.name)
    place, salt = paths.heads / name, secrets.token_hex(16)
    hashes = tuple(sorted(_hashed(salt, mark) for mark in set(chats)))
    entry = replace(
        entry, name=name, folder=place / secrets.token_hex(4), salt=salt if hashes else "",
        taught_by=hashes,
    )  # fmt: skip
    with explained(f"cannot keep {entry.name}", SpecchatError):
        make_private_folder(entry.folder)
        for file in files:
            with file.open("rb") as source, replacing(entry.folder / file.name) as copy:
                shutil.copyfileobj(source, copy)
        write_whole(place / MANIFEST, manifest_of(entry))
        for other in place.iterdir():
            if other.is_dir() and other != entry.folder:
                shutil.rmtree(other, ignore_errors=True)
    return entry


def manifest_of(entry: Registered) -> str:
    return json.dumps({"schema": _SCHEMA} | asdict(entry) | {"folder": entry.folder.name})


def registered(paths: Paths) -> Iterator[Registered]:
    """Those of the user, then those that come with specchat and were not trained anew.

    Damaged manifests are left out.
    """
    known = set[tuple[str, str, str]]()
    for root in (paths.heads, BUNDLED):
        for manifest in sorted(root.glob(f"*/{MANIFEST}")):
            entry = _read(manifest)
            if entry is not None and (key := (entry.name, entry.engine, entry.target)) not in known:
                known.add(key)
                yield entry


def _read(manifest: Path) -> Registered | None:
    facts: dict[str, Any] = read_object(manifest)
    if facts.pop("schema", None) != _SCHEMA:
        return None
    own = {"name", "folder", "acceptance", "taught_by"}
    known = {field.name for field in fields(Registered)} - own
    with suppress(TypeError, ValueError):
        return Registered(
            name=manifest.parent.name,
            folder=manifest.parent / Path(str(facts.pop("folder", ""))).name,
            acceptance=tuple(float(one) for one in facts.pop("acceptance", ())),
            taught_by=tuple(map(str, facts.pop("taught_by", ()))),
            **{key: str(value) for key, value in facts.items() if key in known},
        )
    return None


def named(paths: Paths, name: str) -> Registered | None:
    return next((each for each in registered(paths) if each.name == name.lower()), None)


def of_file(path: Path) -> Registered | None:
    """The one that a file or folder belongs to."""
    places = path, path.parent, path.parent.parent
    entries = (_read(place / MANIFEST) for place in places)
    return next((one for one in entries if one and one.folder in places), None)


def found_here(
    paths: Paths, target: Path, engine: str
) -> Iterator[tuple[Registered, FoundDrafter]]:
    """Heads that were trained for a model; one of a file that has changed since tells so."""
    for entry in registered(paths):
        refusal = entry.refusal(target, engine)
        if refusal and entry.model != target.name:
            continue
        with suppress(ModelError):
            drafter = drafter_of(entry.path)
            if drafter is not None and drafter.is_alone:
                why = refusal or misfit(drafter, target, engine)
                yield entry, FoundDrafter(entry.path, drafter, why)


def taught_by(paths: Paths, mark: str) -> list[str]:
    """Names of those that learned from a chat; mark: as History.marks gives it."""
    return [one.name for one in registered(paths) if _hashed(one.salt, mark) in one.taught_by]


def forget(paths: Paths, entry: Registered) -> None:
    """Delete one.

    Raises:
        UsageError: it comes with specchat.
        SpecchatError: it cannot be deleted.
    """
    if entry.is_bundled:
        what = f"{entry.name} cannot be removed"
        raise UsageError(what, "it comes with specchat", "To draft without: --draft off")
    place = paths.heads / entry.name
    with explained(f"cannot remove {entry.name}", SpecchatError):
        (place / MANIFEST).unlink()
        shutil.rmtree(place)


def _hashed(salt: str, mark: str) -> str:
    return hashlib.sha256(f"{salt} {mark}".encode()).hexdigest()
