"""Fuzzes specchat's readers with damaged files of every kind.

Run: `python -m scripts.campaigns.fuzz_files [KIND …]`.

Every damaged file has to be read, rebuilt or refused by a named error, within 5 s and 200 MB more
than its size. What does otherwise is kept in --keep, named by its kind, seed and number.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.fuzzing.campaign import Found, Kind, Summary, damaged_file, readings
from scripts.fuzzing.model_files import (
    Engine,
    Gguf,
    HeadFolders,
    Heads,
    MlxConfig,
    RecentModels,
    Safetensors,
)
from scripts.fuzzing.stored_files import (
    ChatDatabaseKind,
    IndexKind,
    JsonKind,
    NgramKind,
    SavedStateKind,
    SettingsKind,
    TemplateKind,
)

_KINDS: tuple[Callable[[], Kind], ...] = (
    Gguf, Safetensors, MlxConfig, Engine, RecentModels, Heads, HeadFolders,
    SettingsKind, JsonKind, NgramKind, SavedStateKind, IndexKind, ChatDatabaseKind,
    TemplateKind,
)  # fmt: skip
KINDS: dict[str, Callable[[], Kind]] = {make().name: make for make in _KINDS}


def main() -> None:
    """Run the campaign and end with 1 if any file was not dealt with."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--files", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="for faulty files")
    given = parser.parse_args()
    faults = 0
    for kind in given.kinds or KINDS:
        summary = Summary()
        for found in readings(KINDS[kind], given.files, given.seed, given.workers):
            summary.add(found)
            if found.reading.fault:
                _keep(kind, found, given.seed, given.keep)
        faults += len(summary.faults)
        print(_line(kind, summary), flush=True)
    sys.exit(1 if faults else 0)


def _line(kind: str, summary: Summary) -> str:
    outcomes = ", ".join(f"{count:,} {name}" for name, count in summary.outcomes.most_common())
    slowest, memory = f"{summary.slowest:.2f} s", f"{summary.most_bytes >> 20} MB"
    return (
        f"{kind:14} {summary.outcomes.total():>7,} files: {outcomes}; "
        f"{len(summary.faults)} faults; slowest {slowest}, most memory {memory}"
    )


def _keep(kind_name: str, found: Found, seed: int, folder: Path) -> None:
    """Write a faulty file down, with why it is one."""
    kind = KINDS[kind_name]()
    with TemporaryDirectory() as made:
        data = damaged_file(kind, kind.samples(Path(made)), seed, found.number)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind_name}-{seed}-{found.number}"
    path.with_suffix(".file").write_bytes(data)
    path.with_suffix(".txt").write_text(found.reading.fault, encoding="utf-8")
    print(
        f"{path.with_suffix('.file')}: {found.reading.fault.strip().splitlines()[-1]}", flush=True
    )


if __name__ == "__main__":
    main()
