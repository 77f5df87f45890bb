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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.bench.llama_server import becomes_ready, free_port
from app.paths import HOME_VARIABLE
from app.settings.catalogue import variable_of
from scripts.campaigns.soak import ALLOCATOR, Held, grown, middle
from scripts.models.counting_model import make

_LONGEST = 48
_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"
_MESSAGES, _RESPONSES = "/v1/messages", "/v1/responses"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SoakRequest:
    """A request, and the statuses that a sound server may answer it with.

    is_streamed: whether the answer is a stream, which has an end of its own. is_json: whether the
    text of its answer must be JSON once it is complete. leaves: whether the client goes away while
    the request or the answer is on its way.
    """

    kind: str
    path: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    statuses: tuple[int, ...] = (200,)
    is_streamed: bool = False
    is_json: bool = False
    leaves: bool = False


class SoakRequests:
    """A source of random requests; paths: those that the server has."""

    def __init__(self, seed: int, key: str, paths: frozenset[str]) -> None:
        self._random = random.Random(seed)
        self._key = key
        makers: dict[Callable[[], SoakRequest], int] = {
            self._chat: 24,
            self._completion: 10,
            self._several: 4,
            self._schema: 8,
            self._prediction: 6,
            self._message: 10,
            self._count: 3,
            self._response: 8,
            self._look: 6,
            self._bad_body: 10,
            self._refused: 6,
            self._gone: 15,
        }
        self._makers = [maker for maker in makers if self._is_served(maker, paths)]
        self._weights = [makers[maker] for maker in self._makers]

    def next(self) -> SoakRequest:
        """A request of a random kind."""
        (maker,) = self._random.choices(self._makers, self._weights)
        return maker()

    def usual(self) -> SoakRequest:
        """A request that is always the same, to compare what is held after it."""
        body = {"messages": [{"role": "user", "content": "once more"}], "max_tokens": 16}
        return self._asked("usual", _CHAT, body | {"temperature": 0})

    def full(self) -> SoakRequest:
        """A request that fills the context: its memory is the process's own from then on."""
        body = {"messages": [{"role": "user", "content": "1 " * 900}], "max_tokens": 1000}
        return self._asked("full", _CHAT, body)

    def _is_served(self, maker: Callable[[], SoakRequest], paths: frozenset[str]) -> bool:
        needed = {
            self._message: _MESSAGES,
            self._count: f"{_MESSAGES}/count_tokens",
            self._response: _RESPONSES,
        }
        return maker not in needed or needed[maker] in paths

    def _chat(self) -> SoakRequest:
        body: Body = {"messages": self._turns(), **self._common()}
        if self._random.random() < 0.2:
            body |= {"logprobs": True, "top_logprobs": self._random.randrange(4)}
        if self._random.random() < 0.2:
            body |= {"presence_penalty": 0.5, "frequency_penalty": 0.5}
        return self._asked("chat", _CHAT, body)

    def _completion(self) -> SoakRequest:
        return self._asked("completion", _TEXT, {"prompt": self._text(), **self._common()})

    def _several(self) -> SoakRequest:
        return self._asked("several", _CHAT, {"messages": self._turns(), "n": 3, **self._common()})

    def _schema(self) -> SoakRequest:
        names = self._random.sample(_WORDS, 3)
        digits = {"type": "string", "pattern": "^[0-9]{1,4}$"}
        schema = {
            "type": "object",
            "properties": dict.fromkeys(names, digits),
            "required": names,
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        body = {"messages": self._turns(), **self._common(), "response_format": form}
        body["max_tokens"] = 400
        body.pop("stop", None)
        return self._asked("schema", _CHAT, body, is_json=True)

    def _prediction(self) -> SoakRequest:
        known = " ".join(str(number) for number in range(1, self._random.randrange(3, 40)))
        body = {"messages": self._turns(), **self._common()}
        body["prediction"] = {"type": "content", "content": known}
        return self._asked("prediction", _CHAT, body)

    def _message(self) -> SoakRequest:
        turns = self._turns()
        body: Body = {"messages": turns, "max_tokens": self._length(), "system": "Count."}
        if self._random.random() < 0.3:
            body["stop_sequences"] = ["7"]
        return self._asked("message", _MESSAGES, body | self._streamed())

    def _count(self) -> SoakRequest:
        body = {"messages": self._turns(), "model": "any"}
        return self._asked("count", f"{_MESSAGES}/count_tokens", body)

    def _response(self) -> SoakRequest:
        body = {"input": self._text(), "max_output_tokens": max(16, self._length())}
        return self._asked("response", _RESPONSES, body | self._streamed())

    def _look(self) -> SoakRequest:
        path = self._random.choice(("/v1/models", "/health", "/metrics", "/props"))
        return SoakRequest("look", path, method="GET", headers=self._headers())

    def _bad_body(self) -> SoakRequest:
        turns = json.dumps(self._turns())
        body = self._random.choice(
            (
                "",
                "{",
                "[]",
                '"text"',
                "[" * 10_000,
                f'{{"messages": {turns}, "temperature": NaN}}',
                f'{{"messages": {turns}, "temperature": -1}}',
                f'{{"messages": {turns}, "max_tokens": -5}}',
                f'{{"messages": {turns}, "max_tokens": 1e400}}',
                f'{{"messages": {turns}, "n": 1000000}}',
                f'{{"messages": {turns}, "model_path": "/etc/passwd"}}',
                '{"messages": [{"role": "wizard", "content": "hi"}]}',
                '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
                '{"messages": []}',
                json.dumps({"messages": [{"role": "user", "content": "1 " * 5000}]}),
            )
        )
        return SoakRequest(
            "bad body", _CHAT, body.encode(), headers=self._headers(), statuses=(400,)
        )

    def _refused(self) -> SoakRequest:
        body, usual = b'{"messages": []}', self._headers()
        return self._random.choice(
            (
                self._wrong(401, usual | {"Authorization": "Bearer wrong"}, body),
                self._wrong(401, usual | {"Authorization": ""}, body),
                self._wrong(403, usual | {"Host": "evil.example"}, body),
                self._wrong(403, usual | {"Origin": "http://evil.example"}, body),
                self._wrong(415, usual | {"Content-Type": "text/plain"}, body),
                SoakRequest("refused", "/v1/nothing", body, headers=usual, statuses=(404,)),
                SoakRequest("refused", _CHAT, method="GET", headers=usual, statuses=(405,)),
            )
        )

    def _gone(self) -> SoakRequest:
        body: Body = {"messages": self._turns(), **self._common(), "max_tokens": 1500}
        body.pop("stop", None)
        path = _CHAT
        return SoakRequest(
            "gone", path, json.dumps(body).encode(), headers=self._headers(), leaves=True
        )

    def _wrong(self, status: int, headers: Mapping[str, str], body: bytes) -> SoakRequest:
        return SoakRequest("refused", _CHAT, body, headers=headers, statuses=(status,))

    def _asked(self, kind: str, path: str, body: Body, *, is_json: bool = False) -> SoakRequest:
        is_streamed = bool(body.get("stream"))
        sent = json.dumps({"model": "any"} | body).encode()
        return SoakRequest(
            kind,
            path,
            sent,
            headers=self._headers(),
            statuses=(200, 503),
            is_streamed=is_streamed,
            is_json=is_json,
        )

    def _common(self) -> Body:
        chosen = self._random
        body: Body = {"max_tokens": self._length(), "temperature": chosen.choice((0, 0.8))}
        if chosen.random() < 0.3:
            body["stop"] = chosen.choice((["7"], [" 12", "2 13"], ["\n"]))
        if chosen.random() < 0.3:
            body["seed"] = chosen.randrange(100)
        return body | self._streamed()

    def _streamed(self) -> Body:
        return {"stream": self._random.random() < 0.5}

    def _length(self) -> int:
        return self._random.choice((1, 4, 16, _LONGEST))

    def _text(self) -> str:
        return " ".join(self._random.choices(_WORDS, k=self._random.choice((1, 3, 10, 40))))

    def _turns(self) -> list[dict[str, str]]:
        turns = [{"role": "user", "content": self._text()}]
        if self._random.random() < 0.4:
            turns += [{"role": "assistant", "content": " 1 2 3"}, {"role": "user", "content": "on"}]
        return turns

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}


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
            if not becomes_ready(self._process, self.address):
                raise RuntimeError("the server does not become ready")
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
