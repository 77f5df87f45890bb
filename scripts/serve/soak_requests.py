"""Requests of every kind that a server gets, good and bad, at random."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
