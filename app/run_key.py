"""By which what was measured of a model is told apart: its weights, and what runs them."""

import hashlib
from pathlib import Path

from backends.engines.runner import Runner
from models.metadata.fingerprint import fingerprint


def run_key(path: Path, variant: str, runner: Runner) -> str:
    """Of a model as an engine runs it on a device with so many threads, fit for a file name.

    Raises:
        OSError: its files cannot be read.
    """
    place = f"{runner.engine} {runner.device} {runner.threads}"
    digest = hashlib.sha256(place.encode()).hexdigest()[:16]
    return f"{fingerprint(path, variant)}-{digest}"
