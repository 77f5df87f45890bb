"""A server as a program of its own, while a block runs."""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.bench.llama_server import becomes_ready

SPECCHAT = str(Path(sys.executable).with_name("specchat"))


@contextmanager
def running_server(
    command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Generator[str]:
    """Start a server that has `/health`; yields its address once it is ready.

    Raises:
        RuntimeError: it ended, or took too long; what it wrote is shown.
    """
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            if not becomes_ready(process, address):
                raise RuntimeError(f"the server is not ready; its code: {process.poll()}")
            yield address
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.terminate()
            process.wait()


_REPLY_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A reply with the times at which its text came, by time.perf_counter()."""

    text: str
    tokens: int
    asked_at: float
    first_at: float
    last_at: float

    @property
    def rate(self) -> float:
        """Tokens after the first a second, from the first text to the last."""
        return (self.tokens - 1) / (self.last_at - self.first_at)


def streamed_reply(address: str, text: str, max_tokens: int) -> StreamedReply:
    """Ask a server for the answer to a message, at temperature 0, and read it as it comes."""
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    said, times, tokens = "", list[float](), 0
    asked_at = time.perf_counter()
    for chunk in _chunks(address, body):
        now = time.perf_counter()
        for choice in chunk.get("choices", []):
            if added := choice["delta"].get("content"):
                said += added
                times.append(now)
        if usage := chunk.get("usage"):
            tokens = usage["completion_tokens"]
    if len(times) < 2 or not tokens:
        raise RuntimeError(f"too short a reply to measure: {said!r}")
    return StreamedReply(said, tokens, asked_at, times[0], times[-1])


def _chunks(address: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    where = urlsplit(address)
    connection = http.client.HTTPConnection(where.netloc, timeout=_REPLY_SECONDS)
    try:
        sent = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", sent, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:500]!r}")
        for line in response:
            data = line.removeprefix(b"data: ").strip()
            if line.startswith(b"data: ") and data != b"[DONE]":
                yield json.loads(data)
    finally:
        connection.close()
