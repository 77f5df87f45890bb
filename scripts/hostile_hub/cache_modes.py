"""Hostile entries in the cache before a download from an honest hub."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.hostile_hub.mode import Lie, Mode
from scripts.hostile_hub.server import COMMIT, CONTENT, FILE, HostileHub, digest

_DIGEST = digest(FILE, CONTENT)
_NO_FOLDER = "is not a folder of the cache"
Plant = Callable[[Path, Path], None]


def cache_modes() -> list[Mode]:
    """All modes with a hostile cache."""
    part, blob = f"blobs/{_DIGEST}.specchat.incomplete", f"blobs/{_DIGEST}"
    entry, locks = f"snapshots/{COMMIT}/{FILE}", "../.locks/models--maker--Small-GGUF"
    folders = {
        "the blobs": "blobs",
        "the refs": "refs",
        "the snapshots": "snapshots",
        "the snapshot": f"snapshots/{COMMIT}",
        "the repository": ".",
        "the repository's locks": locks,
        "the locks": "../.locks",
    }
    files = {"part": part, "blob": blob, "entry": entry, "ref": "refs/main"}
    draft = f"blobs/main-{_DIGEST[:12]}.specchat.incomplete"
    lock_file = f"{locks}/specchat-{_DIGEST}.lock"
    return [
        *(
            Mode(f"a link in place of {name}", _planted(place, _link_to_folder), _NO_FOLDER)
            for name, place in folders.items()
        ),
        *(
            Mode(f"a link out in place of the {name}", _planted(place, _link_to_file), None)
            for name, place in files.items()
        ),
        *(
            Mode(f"a broken link in place of the {name}", _planted(place, _broken_link), None)
            for name, place in files.items()
        ),
        Mode("a link out in place of the lock", _planted(lock_file, _link_to_file), "cannot write"),
        Mode("a link out in place of the ref's draft", _planted(draft, _link_to_file), None),
        Mode("a right blob outside", _planted(blob, _link_to_right_content), None),
        Mode("a part that is a second name", _planted(part, _second_name), None),
        Mode("a part of other bytes", _planted(part, _other_bytes(70_000)), "arrived damaged"),
        Mode(
            "a part as long as the file", _planted(part, _other_bytes(200_000)), "arrived damaged"
        ),
        Mode(
            "a part longer than the file", _planted(part, _other_bytes(300_000)), "arrived damaged"
        ),
        Mode("a part that is a folder", _planted(part, _folder), "cannot write"),
        Mode("a damaged blob", _planted(blob, _other_bytes(200_000)), None),
        Mode("half a blob", _planted(blob, _other_bytes(100_000)), None),
        Mode("a blob that is a folder", _planted(blob, _folder), "cannot write"),
        Mode("a damaged file in the snapshot", _planted(entry, _other_bytes(200_000)), None),
        Mode("a folder in place of the file", _planted(entry, _folder), "cannot write"),
        *([Mode("a part that is a pipe", _planted(part, _pipe), None)] if _HAS_PIPES else []),
        *([Mode("a blob that is a pipe", _planted(blob, _pipe), None)] if _HAS_PIPES else []),
        *(
            [Mode("a blob that never ends", _planted(blob, _device), None)]
            if Path("/dev/zero").exists()
            else []
        ),
    ]


_HAS_PIPES = hasattr(os, "mkfifo")


def _planted(place: str, plant: Plant) -> Lie:
    def lie(hub: HostileHub) -> None:
        path = Path(os.path.normpath(hub.blobs.parent / place))
        path.parent.mkdir(parents=True, exist_ok=True)
        plant(path, hub.outside)

    return lie


def _link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside, target_is_directory=True)


def _link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "precious")


def _link_to_right_content(path: Path, outside: Path) -> None:
    (outside / "right").write_bytes(CONTENT)
    path.symlink_to(outside / "right")


def _broken_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "evil")


def _second_name(path: Path, outside: Path) -> None:
    path.hardlink_to(outside / "precious")


def _other_bytes(length: int) -> Plant:
    def plant(path: Path, _: Path) -> None:
        path.write_bytes(bytes(length))

    return plant


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def _pipe(path: Path, _: Path) -> None:
    if sys.platform != "win32":
        os.mkfifo(path)


def _device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")
