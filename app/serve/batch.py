"""Answers the requests of a file, in OpenAI's batch form, as the server would answer them."""

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast

from filelock import FileLock, Timeout
from httpx2 import ASGITransport, Request
from pydantic import Field

from app.serve.incoming import Guard
from app.serve.refusal import RefusedError, invalid
from app.serve.request_body import Fields, read_body
from app.serve.served_engine import ServedEngine
from app.serve.server import application_of
from app.settings.answering import Answering
from backends.base import ModelError, UsageError
from backends.base.safe_files import FILE_MODE, private_opener, sync_file

_SYNC_SECONDS = 1.0
"""Between two moments at which all that was written is on the disk."""

_ID = "batch_req_"
"""Begins the id of an answer; the number of its request's line follows."""
_BEGINNING = b'{"id": "%s' % _ID.encode()
"""Of each line that is written: a last one without an end that begins so was torn."""

Tell = Callable[[int, int, float], None]


class Asked(Fields):
    custom_id: Annotated[str, Field(min_length=1, max_length=1024)]
    method: Literal["POST"] = "POST"
    url: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    body: dict[str, object]


async def answer_batch(
    asked: Path, answers: Path, served: ServedEngine, defaults: Answering, tell: Tell
) -> tuple[int, int]:
    """Answer the requests of a file that have no answer yet; returns how many are, and failed.

    Answers come in the order in which they end. A request without a seed gets one that follows from
    its custom_id, so that it does not matter in which run it is answered. tell: of lines that are
    answered, all lines, and the seconds left by the rate of this run.

    Raises:
        UsageError: a file cannot be used, or has other things than answers to these requests.
        ModelError: no model answers any more.
    """
    lock = FileLock(answers.with_name(f".{answers.name}.lock"), mode=FILE_MODE, blocking=False)
    try:
        with asked.open("rb") as source, lock, open(answers, "ab+", opener=private_opener) as file:
            return await _answer(source, file, served, defaults, tell)
    except Timeout as error:
        raise UsageError(f"{answers} is in use", "another batch writes to it") from error
    except OSError as error:
        why = f"{error.filename or answers}: {error.strerror or error}"
        raise UsageError("the batch cannot go on", why) from error


async def _answer(
    source: BinaryIO, file: BinaryIO, served: ServedEngine, defaults: Answering, tell: Tell
) -> tuple[int, int]:
    lines = _lines(source)
    known = _known(file, source, lines)
    before, began_at, synced_at = len(known), time.monotonic(), time.monotonic()
    left = iter([number for number in lines if number not in known])

    async def work() -> None:
        nonlocal synced_at
        for number in left:
            source.seek(lines[number])
            answer = await _answered(number, source.readline(), served, defaults)
            file.write(json.dumps(answer).encode() + b"\n")
            file.flush()  # to the system, which keeps it if this process is killed
            known[number] = _has_failed(answer)
            now = time.monotonic()
            if now - synced_at >= _SYNC_SECONDS:
                synced_at = now
                sync_file(file)
            each = (now - began_at) / (len(known) - before)
            tell(len(known), len(lines), each * (len(lines) - len(known)))

    workers = [asyncio.ensure_future(work()) for _ in range(served.turns.at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        sync_file(file)
    return len(known), sum(known.values())


def _lines(source: BinaryIO) -> dict[int, int]:
    """Where each line is that is not blank, by its number."""
    lines: dict[int, int] = {}
    at = 0
    for number, text in enumerate(source, start=1):
        if text.strip():
            lines[number] = at
        at += len(text)
    return lines


def _known(file: BinaryIO, source: BinaryIO, lines: dict[int, int]) -> dict[int, bool]:
    """Lines with an answer, and whether that is an error; a torn answer is cut off."""
    known: dict[int, bool] = {}
    file.seek(0)
    whole = 0
    try:
        for text in file:
            if not text.endswith(b"\n"):
                torn = text.rstrip(b"\0")  # after a power cut
                if not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
                    raise ValueError
                break
            answer = json.loads(text)
            number = int(answer["id"].removeprefix(_ID))
            source.seek(lines[number])
            name, line = answer["custom_id"], source.readline()
            if name is not None and name != json.loads(line)["custom_id"]:
                raise ValueError
            known[number] = _has_failed(answer)
            whole += len(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        why = "the file of answers has other things than answers to these requests"
        raise UsageError("the batch cannot go on", why) from error
    file.truncate(whole)
    return known


def _has_failed(answer: dict[str, Any]) -> bool:
    return bool(answer["error"]) or answer["response"]["status_code"] != 200


async def _answered(
    number: int, line: bytes, served: ServedEngine, defaults: Answering
) -> dict[str, Any]:
    custom_id = response = error = None
    try:
        asked = read_body(Asked, line)
        custom_id = asked.custom_id
        if asked.body.get("stream"):
            raise invalid("body.stream: an answer in a file is not streamed")
    except RefusedError as refusal:
        custom_id = _id_in(line)
        error = {"code": "invalid_request", "message": refusal.message}
    else:
        drawn = hashlib.sha256(f"{defaults.sampling.seed}:{custom_id}".encode()).digest()
        sampling = replace(defaults.sampling, seed=int.from_bytes(drawn[:4]))
        seeded = replace(defaults, sampling=sampling, has_seed=True)
        status, body = await _posted(served, seeded, asked.url, asked.body)
        if status == 503:
            raise ModelError("the batch was stopped", body["error"]["message"])
        response = {"status_code": status, "request_id": f"req_{uuid.uuid4().hex}", "body": body}
    return {"id": f"{_ID}{number}", "custom_id": custom_id, "response": response, "error": error}


def _id_in(line: bytes) -> str | None:
    """The custom_id of a line that is no request, None if it has none."""
    with suppress(ValueError, RecursionError):
        told = json.loads(line)
        if isinstance(told, dict):
            found = cast("dict[str, object]", told).get("custom_id")
            return found if isinstance(found, str) else None
    return None


async def _posted(
    served: ServedEngine, defaults: Answering, url: str, body: dict[str, object]
) -> tuple[int, Any]:
    """Status and body of the reply to a request that comes over no network."""
    server = ASGITransport(application_of(served, defaults, Guard("localhost")))
    address, names = f"http://localhost{url}", {"user-agent": "batch"}
    response = await server.handle_async_request(Request("POST", address, json=body, headers=names))
    return response.status_code, json.loads(await response.aread())
