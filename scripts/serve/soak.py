"""Soak test of the server: thousands of requests of mixed kinds must leave nothing behind.

Run: python -m scripts.serve.soak [--requests N] [--seed N] [--growth PERCENT] [--clients N]

It ends with 1 if memory, files or threads grow, an answer is not as it must be, or a place in the
queue is never given back. A tiny model answers, so that thousands of requests take minutes; several
clients ask at once: all dialects, streams, schemas, predictions, bad input, wrong keys, and clients
that go away at a random moment. Memory is what belongs to the server's process alone, compared
after the first requests and at the end, each time as the median after several equal requests.
"""

import argparse
import http.client
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.paths import HOME_VARIABLE
from app.settings.catalogue import variable_of
from scripts.campaigns.held import ALLOCATOR, Held, grown, middle
from scripts.models.counting_model import make
from scripts.serve.running_server import free_port, wait_until_ready
from scripts.serve.soak_requests import SoakRequest, SoakRequests

_WARM_UP = 4000
"""Requests before the first reading: memory still grew by 1 % from 2,000 to 4,000, then no more."""

_READINGS = 9
_CONTEXT = 2048
_DRAFTER = "lookup"
"""Beside those of one reply. The table of n-grams is given its 8 MB only as it fills."""

_PROMPT_MEGABYTES = 1
"""For copies of prompt caches: so few that a short run fills them before its first reading too."""

_PATIENCE_SECONDS = 60.0
"""How long one answer may take; it waits for those before it."""

_DIALECTS = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")
_ENDS = {
    "/v1/messages": (b"event: message_stop",),
    "/v1/responses": (b"event: response.completed", b"event: response.incomplete"),
}
"""Events that a stream ends with which has not broken; else it is [DONE]."""


class Client:
    """Sends requests, one after the other, and notes what is wrong with the answers."""

    def __init__(self, address: str, source: SoakRequests, seed: int) -> None:
        self._where = urlsplit(address).netloc
        self._source = source
        self._random = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self, count: int) -> None:
        """Send so many random requests."""
        for _ in range(count):
            self.send(self._source.next())

    def send(self, request: SoakRequest) -> None:
        """Send one, and check what comes back."""
        connection = http.client.HTTPConnection(self._where, timeout=_PATIENCE_SECONDS)
        try:
            if request.leaves:
                self._leave(connection, request)
                self.seen[request.kind] += 1
                return
            connection.request(request.method, request.path, request.body, dict(request.headers))
            response = connection.getresponse()
            self._check(request, response.status, response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._fault(request, repr(error))
        finally:
            connection.close()

    def _leave(self, connection: http.client.HTTPConnection, request: SoakRequest) -> None:
        """Go away with the headers sent, a part of the body, or a part of the answer read."""
        connection.putrequest(request.method, request.path)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders()
        moment = self._random.random()
        if moment < 0.2:
            connection.send(request.body[: self._random.randrange(len(request.body))])
            return
        connection.send(request.body)
        if moment < 0.4:
            return
        time.sleep(self._random.uniform(0.0, 0.05))
        if moment > 0.7 and b'"stream": true' in request.body:
            response = connection.getresponse()
            response.read1(self._random.randrange(1, 2000))

    def _check(self, request: SoakRequest, status: int, body: bytes) -> None:
        self.seen[f"{request.kind} {status}"] += 1
        if status not in request.statuses:
            self._fault(request, f"status {status}: {body[:300]!r}")
        elif b"Traceback" in body:
            self._fault(request, f"a traceback: {body[:300]!r}")
        elif status == 200 and request.is_streamed:
            ends = _ENDS.get(request.path, (b"data: [DONE]",))
            if b'"error":{' in body or not any(end in body for end in ends):
                self._fault(request, f"a broken stream: {body[-300:]!r}")
        elif request.method == "POST" and not isinstance(json.loads(body), dict):
            self._fault(request, f"no object: {body[:300]!r}")
        elif status == 200 and request.is_json:
            self._check_json(request, json.loads(body))

    def _check_json(self, request: SoakRequest, reply: Mapping[str, Any]) -> None:
        (choice,) = reply["choices"]
        if choice["finish_reason"] != "stop":
            return
        wanted = json.loads(request.body)["response_format"]["json_schema"]["schema"]
        said = json.loads(choice["message"]["content"])
        if set(said) != set(wanted["required"]):
            self._fault(request, f"{said} does not match")

    def _fault(self, request: SoakRequest, what: str) -> None:
        self.faults.append(f"{request.kind} {request.path} {request.body[:200]!r}: {what}")


class SoakedServer:
    """A server in a process of its own, which tells what it holds."""

    def __init__(self, folder: Path, key: str) -> None:
        model, keys = make(folder / "target.gguf", has_template=False), folder / "key"
        keys.write_text(key, encoding="utf-8")
        port = free_port()
        command = [sys.executable, "-m", "scripts.serve.soaked_server", "serve", "--offline"]
        command += ["--model", str(model), "--ctx", str(_CONTEXT), "--threads", "1"]
        command += ["--draft", _DRAFTER]
        command += ["--port", str(port), "--key-file", str(keys)]
        environment = os.environ | {
            HOME_VARIABLE: str(folder / "home"),
            ALLOCATOR: "malloc",
            variable_of("prompt_memory"): str(_PROMPT_MEGABYTES),
        }
        self.address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            wait_until_ready(self._process, self.address)
        except BaseException:
            self.close()
            raise

    def held(self, client: Client, usual: SoakRequest) -> Held:
        """The median of readings, each after the same request."""
        readings: list[Held] = []
        for _ in range(_READINGS):
            client.send(usual)
            readings.append(self._held())
        return middle(readings)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _held(self) -> Held:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Held(**json.loads(self._process.stdout.readline()))


def soak(given: argparse.Namespace, folder: Path) -> list[str]:
    """Print figures, and return what grew or failed."""
    key = secrets.token_hex(8)
    server = SoakedServer(folder, key)
    started = time.monotonic()
    try:
        paths = frozenset(path for path in _DIALECTS if _is_served(server.address, path, key))
        print(f"dialects beside OpenAI's: {', '.join(sorted(paths)) or 'none'}")
        source = SoakRequests(given.seed, key, paths)
        clients = [
            Client(server.address, SoakRequests(seed, key, paths), seed)
            for seed in range(given.seed, given.seed + given.clients)
        ]
        clients[0].send(source.full())
        done = min(_WARM_UP, given.requests // 2)
        _run(clients, done)
        before = server.held(clients[0], source.usual())
        print(f"after the first {done:,}: {before}", flush=True)
        after = before
        readings: list[Held] = []
        while done < given.requests:
            count = min(given.requests - done, max(1000, given.requests // 10))
            _run(clients, count)
            done += count
            readings.append(server.held(clients[0], source.usual()))
            print(f"after {done:,}: {readings[-1]}", flush=True)
        after = middle(readings[-3:] or [before])
        faults = [fault for client in clients for fault in client.faults]
        faults += _stuck(server.address, key)
    finally:
        server.close()
    seen = sum((client.seen for client in clients), Counter[str]())
    for kind, count in sorted(seen.items()):
        print(f"  {kind}: {count:,}")
    share = after.memory / before.memory - 1
    print(f"{seen.total():,} requests in {time.monotonic() - started:.0f} s; {after}")
    print(f"memory {100 * share:+.2f} %, {len(faults)} faults")
    return faults + grown(before, after, given.growth / 100)


def _run(clients: list[Client], count: int) -> None:
    """Share requests among the clients, which ask at once."""
    with ThreadPoolExecutor(len(clients)) as pool:
        for done in [pool.submit(client.run, count // len(clients)) for client in clients]:
            done.result()


def _is_served(address: str, path: str, key: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", path, b"{}", headers)
    status = connection.getresponse().status
    connection.close()
    return status != 404


def _stuck(address: str, key: str) -> list[str]:
    """Requests that the server still holds though nobody waits for them."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_PATIENCE_SECONDS)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    gauges = [line for line in lines if line.startswith("specchat_requests_")]
    if len(gauges) < 2:
        return ["/metrics does not tell of the queue"]
    return [f"still there: {line}" for line in gauges if float(line.split()[-1])]


def main() -> None:
    """Soak as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=14_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth", type=float, default=1.0, help="per cent that is too much")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = soak(given, Path(folder))
    for fault in list(dict.fromkeys(faults))[:50]:
        print(f"FAULT: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
