"""A child process that lets heads draft, and is replaced when one ends it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

_ROOT = Path(__file__).parents[3]
_SECONDS = 8.0
"""Less than a campaign waits for a file."""


class HeadChild:
    """Runs tests/fixtures/tiny/head_run.py."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: SimpleQueue[str] = SimpleQueue()

    def drafted(self, target: Path, head: Path) -> list[int] | str | None:
        """Tokens that a head drafts, or why the engine refused; None if the child ended or hung."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([str(target), str(head)]) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=_SECONDS)
        except (OSError, Empty):
            line = ""
        if not line:
            self.close()
            return None
        answer: Any = json.loads(line)
        return answer

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fixtures.tiny.head_run"],
            cwd=_ROOT,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lines = self._lines = SimpleQueue[str]()

        def receive() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        Thread(target=receive, daemon=True).start()
        return process

    def close(self) -> None:
        """Kill the child."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
