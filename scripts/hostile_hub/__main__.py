"""Download from a hub in every hostile mode; exit code 1 if one went wrong."""

import argparse
import sys
import tempfile
from pathlib import Path

from models.hub.connection import hub_client
from scripts.hostile_hub.trial import MODES, Verdict, try_mode


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="hostile_hub", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="a piece of the names of modes to run")
    wanted = parser.parse_args().name
    hub_client()
    failed = 0
    chosen = [mode for mode in MODES if wanted in mode.name]
    print(f"{'mode':<44} {'received':>10} {'memory':>8} {'seconds':>8}  outcome")
    for mode in chosen:
        with tempfile.TemporaryDirectory() as folder:
            verdict = try_mode(mode, Path(folder).resolve())
        failed += bool(verdict.faults)
        print(_line(verdict))
        for fault in verdict.faults:
            print(f"    WRONG: {fault}")
    print(f"{len(chosen)} modes, {failed} went wrong")
    return 1 if failed else 0


def _line(verdict: Verdict) -> str:
    figures = f"{verdict.received_bytes:>10,} {verdict.memory_bytes >> 20:>5} MB"
    outcome = verdict.outcome.splitlines()[0][:100]
    return f"{verdict.mode.name:<44} {figures} {verdict.seconds:>8.2f}  {outcome}"


sys.exit(main())
