"""Speeds of disks, measured once per model file and cached on disk."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.paths import Paths
from backends.streaming.disk_speed import DiskSpeed, measured_disk_speed
from models.json_file import change_object, read_object
from models.metadata.content_hash import stamp

_MOST = 200


@dataclass(frozen=True, slots=True)
class _Entry:
    device: int
    speed: DiskSpeed


def disk_speed(model: Path, paths: Paths) -> DiskSpeed | None:
    """Speed of reading a model's file, measured in under two seconds unless it was before.

    None if it cannot be measured.
    """
    try:
        key, device = stamp(model), model.stat().st_dev
    except OSError:
        return None
    known = _entries(read_object(paths.disk_speeds)).get(key)
    if known is not None:
        return known.speed
    measured = measured_disk_speed(model)
    if measured is not None:
        _keep(key, _Entry(device, measured), paths)
    return measured


def known_disk_speed(model: Path, paths: Paths) -> DiskSpeed | None:
    """Speed measured before on a model's file, else on the last file of its disk; None if none."""
    try:
        key, device = stamp(model), model.stat().st_dev
    except OSError:
        return None
    entries = _entries(read_object(paths.disk_speeds))
    if key in entries:
        return entries[key].speed
    beside = [entry.speed for entry in entries.values() if entry.device == device]
    return beside[-1] if beside else None


def _keep(key: str, entry: _Entry, paths: Paths) -> None:
    def changed(before: dict[str, Any]) -> dict[str, Any]:
        entries = {**_entries(before), key: entry}
        return {name: _record(entries[name]) for name in list(entries)[-_MOST:]}

    change_object(paths.disk_speeds, changed)


def _record(entry: _Entry) -> dict[str, Any]:
    rate, source = entry.speed.bytes_per_second, entry.speed.source
    return {"device": entry.device, "bytes_per_second": rate, "source": source}


def _entries(record: dict[str, Any]) -> dict[str, _Entry]:
    parsed = {key: _parsed(value) for key, value in record.items()}
    return {key: entry for key, entry in parsed.items() if entry is not None}


def _parsed(value: Any) -> _Entry | None:
    """Entry of a record, None if it is malformed."""
    try:
        device, source = int(value["device"]), str(value["source"])
        rate = float(value["bytes_per_second"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return _Entry(device, DiskSpeed(rate, source)) if 0.0 < rate < math.inf else None
