"""Making a smaller copy of a GGUF file in a child process.

Copying is slow, uninterruptible native code that may abort on unusual files: a child can be
stopped, and its crash stays contained.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from backends.base import DraftUnavailableError

_WORKER = Path(__file__).with_name("requantize_worker.py")


def requantize(
    source: Path, target: Path, quantization: str | None, skipped_layers: Sequence[int] = ()
) -> Iterator[tuple[int, int]]:
    """Write source to target with fewer bits (None: unchanged) and without some layers.

    Yields (tensors done, tensors in total). Closing the generator stops the work.

    Raises:
        DraftUnavailableError: the engine failed; target may be incomplete.
    """
    layers = ",".join(map(str, skipped_layers))
    arguments = [str(source), str(target), quantization or "", layers]
    worker = subprocess.Popen(
        [sys.executable, "-I", "-X", "utf8", str(_WORKER), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    reason = "the engine ended its process"
    with worker.stdout as lines:
        try:
            for line in lines:
                kind, _, rest = line.rstrip("\n").partition(" ")
                if kind == "progress":
                    done, total = map(int, rest.split())
                    yield done, total
                elif kind == "failed":
                    reason = rest
            status = worker.wait()
        finally:
            worker.kill()
            worker.wait()
            worker.stdin.close()
    if status != 0:
        raise DraftUnavailableError(f"no drafter could be made from {source.name}", reason)
