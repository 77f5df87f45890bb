"""HTTP to a specchat that verifies drafts; app/serve/verifying.py is the other end."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Annotated, Any, TypeVar

from httpx2 import Client, HTTPError, InvalidURL, Response, Timeout
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from backends.base import ModelError, PassStoppedError, UsageError
from backends.base.model import pass_is_stopped

_PATH = "/v1/verify"

_CONNECT_SECONDS, _PASS_SECONDS = 10.0, 120.0
"""A pass may wait for an answer of the server's. Guesses; not measured."""

_LONG_SECONDS = 1.0
"""A pass that takes less is waited for, as what it read would have to be read again. A guess."""

_REMEDY = "Only `specchat serve` does. With --draft auto a server answers in words."
_MOST_SHOWN = 300
_UNAUTHORIZED, _NOT_FOUND, _CHANGED, _GONE, _UNAVAILABLE = 401, 404, 409, 410, 503


class LostError(Exception):
    """The server holds nothing of a context any more, or the connection to it broke."""


def _shown(text: str) -> str:
    """A text of the server's as it may be shown."""
    return "".join(filter(str.isprintable, text))[:_MOST_SHOWN]


_Shown = Annotated[str, AfterValidator(_shown)]
_Count = Annotated[int, Field(ge=0, lt=1 << 48)]
_Size = Annotated[int, Field(ge=1, lt=1 << 24)]
_Token = Annotated[int, Field(ge=0, lt=1 << 24)]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its server describes it. model: its identity, whatever it is called."""

    model: Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")]
    n_ctx: _Size
    name: _Shown
    architecture: _Shown
    quantization: _Shown
    parameters: _Count
    weight_bytes: _Count
    bytes_read_per_token: _Count
    n_layers: _Count
    n_vocab: _Size
    engine: _Shown
    device: _Shown
    threads: _Count


@dataclass(frozen=True, slots=True)
class Opened:
    """A new context, with its bounds as in ContextFacts."""

    context: str
    n_ctx: _Size
    n_chunk: _Size
    max_logits: _Size
    max_rollback: _Count


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass gave; of one that only read, the token means nothing."""

    accepted: _Count = 0
    token: _Token = 0
    likeliest: Sequence[_Token] = ()


_Told = TypeVar("_Told")
_MODEL, _OPENED, _PASSED = TypeAdapter(ServedModel), TypeAdapter(Opened), TypeAdapter(Passed)


@contextmanager
def reaching(url: str) -> Generator[None]:
    """Turn what is lost within the block into an error for users."""
    try:
        yield
    except LostError as error:
        remedy = "What was said is kept. Is the server running? Then try again."
        raise ModelError(f"{url} does not answer", str(error), remedy) from error


class VerifyingServer:
    """A server by its URL, without the path of a dialect, and its key, "" for none.

    Methods raise ModelError if the server refuses or answers nonsense, UsageError if it wants
    another key, LostError if the connection breaks, and PassStoppedError (see stopping_passes).
    """

    def __init__(self, url: str, key: str = "", client: Client | None = None) -> None:
        self.url = url
        timeout = Timeout(_PASS_SECONDS, connect=_CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = client or Client(timeout=timeout, headers=headers)

    def model(self) -> ServedModel:
        return self._read(_MODEL, self._asked("GET"))

    def vocabulary(self) -> bytes:
        """Its model's GGUF file without weights."""
        return self._asked("GET", "/vocabulary").content

    def open(self, model: str, n_ctx: int) -> Opened:
        return self._read(_OPENED, self._asked("POST", body=_pass("", model, n_ctx)))

    def run(self, context: str, model: str, n_ctx: int, **asked: object) -> Passed:
        """Run a pass; asked: as app.serve.verifying.Pass names it."""
        body = _pass(context, model, n_ctx) | asked
        return self._read(_PASSED, self._asked("POST", body=body))

    def close_context(self, context: str) -> None:
        self._asked("DELETE", f"/{context}")

    def close(self) -> None:
        self._client.close()

    def _asked(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> Response:
        try:
            response = _unless_stopped(
                lambda: self._client.request(method, f"{self.url}{_PATH}{path}", json=body)
            )
        except InvalidURL as error:
            raise UsageError(f"--url {self.url} cannot be used", str(error)) from error
        except HTTPError as error:
            raise LostError(str(error) or type(error).__name__) from error
        if response.status_code == _GONE:
            raise LostError("it closed the context")
        if not response.is_success:
            raise self._refused(response)
        return response

    def _refused(self, response: Response) -> ModelError | UsageError:
        """The error for a refusal, in the server's words as far as it has some."""
        status = response.status_code
        try:
            why = _shown(str(response.json()["error"]["message"]))
        except (ValueError, KeyError, TypeError):
            why = f"it answered with status {status}"
        if status == _UNAUTHORIZED:
            return UsageError(f"{self.url} wants a key", why, "Give the one that it was given.")
        if status == _CHANGED:
            what = "the answer cannot go on: the model of the server has changed"
            return ModelError(what, why, "What was said is kept. Load the model again.")
        if status == _NOT_FOUND:
            return ModelError(f"{self.url} verifies no drafts", why, _REMEDY)
        what = "cannot answer now" if status == _UNAVAILABLE else "refused"
        return ModelError(f"{self.url} {what}", why, "What was said is kept.")

    def _read(self, form: TypeAdapter[_Told], response: Response) -> _Told:
        try:
            return form.validate_json(response.content)
        except ValidationError as error:
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            what = f"{place} is missing or wrong" if place else "it is no JSON object"
            why = f"its answer is not that of a specchat: {what}"
            raise ModelError(f"{self.url} verifies no drafts", why, _REMEDY) from error


def _unless_stopped(request: Callable[[], Response]) -> Response:
    """The response to a request, which is left alone if its pass takes long and shall end."""
    answered: Future[Response] = Future()

    def ask() -> None:
        try:
            answered.set_result(request())
        except Exception as error:
            answered.set_exception(error)

    Thread(target=ask, daemon=True).start()
    while not wait([answered], _LONG_SECONDS).done:
        if pass_is_stopped():
            raise PassStoppedError
    return answered.result()


def _pass(context: str, model: str, n_ctx: int) -> dict[str, object]:
    """A pass over nothing."""
    of = {"context": context, "model": model, "n_ctx": n_ctx}
    return {**of, "length": 0, "tokens": [], "drafted": [], "uniforms": []}
