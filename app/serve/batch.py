"""Answers the requests of a file, in OpenAI's batch form, as the server would answer them."""

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from filelock import FileLock, Timeout
from pydantic import Field
from starlette.types import Message

from app.serve.incoming import Guard
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Fields, read_body
from app.serve.served_engine import AT_ONCE, ServedEngine
from app.serve.server import application_of
from app.settings.answering import Answering
from backends.base import ModelError, UsageError
from backends.base.safe_files import private_opener, sync_file

_SYNC_SECONDS = 1.0
"""Between two moments at which all that was written is on the disk."""

_BEGINNING = b'{"id": "batch_req_'
"""Of each line that is written: a last one without an end that begins so was torn."""


class Asked(Fields):
    """A line of a batch."""

    custom_id: Annotated[str, Field(min_length=1, max_length=1024)]
    method: Literal["POST"] = "POST"
    url: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    body: dict[str, object]


@dataclass(frozen=True, slots=True)
class _Line:
    """Where a request is, and why it is none, if so."""

    number: int
    at: int
    custom_id: str | None
    refusal: str


@dataclass(slots=True)
class Progress:
    """Lines of a batch: in all, those that earlier runs answered, this one did, and that failed."""

    total: int
    before: int
    failed: int
    done: int = 0
    began_at: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """By the rate of this run; None before its first answer."""
        left = self.total - self.before - self.done
        return left * (time.monotonic() - self.began_at) / self.done if self.done else None


async def answer_batch(
    asked: Path,
    answers: Path,
    served: ServedEngine,
    defaults: Answering,
    tell: Callable[[Progress], None],
) -> Progress:
    """Answer the requests of a file that have no answer yet; answers come in the order they end.

    A request without a seed gets one that follows from its custom_id, so that it does not matter in
    which run it is answered.

    Raises:
        UsageError: a file cannot be used, or has answers to other requests.
        ModelError: no model answers any more.
    """
    with _reading(asked) as source, _writing(answers) as file:
        lines = _lines(source)
        known = _known(file, lines, answers)
        progress = Progress(len(lines), len(known), sum(known.values()))
        left = iter([line for key, line in lines.items() if key not in known])
        synced_at = time.monotonic()

        async def work() -> None:
            nonlocal synced_at
            for line in left:
                answer = await _answered(line, source, served, defaults)
                file.write(json.dumps(answer).encode() + b"\n")
                file.flush()  # to the system, which keeps it if this process is killed
                progress.done += 1
                progress.failed += _has_failed(answer)
                if time.monotonic() - synced_at >= _SYNC_SECONDS:
                    synced_at = time.monotonic()
                    sync_file(file)
                tell(progress)

        workers = [asyncio.ensure_future(work()) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            sync_file(file)
    return progress


@contextmanager
def _reading(path: Path) -> Generator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be read", str(error.strerror or error)) from error


@contextmanager
def _writing(path: Path) -> Generator[BinaryIO]:
    """The file of answers, for this process alone."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock, timeout=0, mode=0o600):
            try:
                with open(path, "ab+", opener=private_opener) as file:
                    yield file
            finally:
                with suppress(OSError):  # Windows removes no open file
                    lock.unlink()
    except Timeout as error:
        raise UsageError(f"{path} cannot be written", "another batch is writing it") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written", str(error.strerror or error)) from error


def _lines(source: BinaryIO) -> dict[str | int, _Line]:
    """Each request by its custom_id, and by its number what is none."""
    lines: dict[str | int, _Line] = {}
    at = 0
    for number, text in enumerate(source, start=1):
        custom_id, refusal = None, ""
        try:
            asked = read_body(Asked, text)
            custom_id = asked.custom_id
            if custom_id in lines:
                raise invalid("custom_id: an earlier line has the same")
            if asked.body.get("stream"):
                raise invalid("body.stream: an answer in a file is not streamed")
        except RefusedError as error:
            refusal = error.message
        if text.strip():
            key = number if refusal or custom_id is None else custom_id
            lines[key] = _Line(number, at, custom_id, refusal)
        at += len(text)
    return lines


def _known(file: BinaryIO, lines: dict[str | int, _Line], path: Path) -> dict[str | int, bool]:
    """Requests with an answer, and whether that is an error; a torn answer is cut off."""
    known: dict[str | int, bool] = {}
    other = UsageError(f"{path} cannot be written", "it holds other things than answers to these")
    file.seek(0)
    whole = 0
    for text in file:
        if not text.endswith(b"\n"):
            torn = text.rstrip(b"\0")  # after a power cut
            if not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
                raise other
            break
        try:
            answer = json.loads(text)
            key: str | int = answer["error"]["line"] if answer["error"] else answer["custom_id"]
            known[key] = _has_failed(answer)
        except (ValueError, TypeError, KeyError) as error:
            raise other from error
        if key not in lines:
            raise other
        whole += len(text)
    file.truncate(whole)
    return known


def _has_failed(answer: dict[str, Any]) -> bool:
    return bool(answer["error"]) or answer["response"]["status_code"] != 200


async def _answered(
    line: _Line, source: BinaryIO, served: ServedEngine, defaults: Answering
) -> dict[str, Any]:
    """The answer to one line, in OpenAI's form; an error in the line tells its number, too."""
    response = error = None
    if line.refusal:
        error = {"code": "invalid_request", "message": line.refusal, "line": line.number}
    else:
        source.seek(line.at)
        asked = read_body(Asked, source.readline())
        drawn = hashlib.sha256(f"{defaults.sampling.seed}:{asked.custom_id}".encode()).digest()
        sampling = replace(defaults.sampling, seed=int.from_bytes(drawn[:4]))
        seeded = replace(defaults, sampling=sampling, has_seed=True)
        status, body = await _posted(served, seeded, asked.url, json.dumps(asked.body).encode())
        if status == 503:
            raise ModelError("the batch was stopped", body["error"]["message"])
        response = {"status_code": status, "request_id": f"req_{uuid.uuid4().hex}", "body": body}
    return {
        "id": f"batch_req_{uuid.uuid4().hex}",
        "custom_id": line.custom_id,
        "response": response,
        "error": error,
    }


async def _posted(
    served: ServedEngine, defaults: Answering, url: str, body: bytes
) -> tuple[int, Any]:
    """Status and body of the reply to a request that comes over no network."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers.append((b"user-agent", b"batch"))
    scope = {"type": "http", "method": "POST", "path": url, "headers": headers}
    coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, parts = 0, bytearray()

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # it stays until it has its answer
        return coming.pop()

    async def send(message: Message) -> None:
        nonlocal status, parts
        status = message.get("status", status)
        parts += message.get("body", b"")

    await application_of(served, defaults, Guard("localhost"))(scope, receive, send)
    return status, json.loads(parts)
