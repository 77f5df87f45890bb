"""Another specchat drafts, and this one's model verifies: over HTTP, with what goes wrong."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.serve import verifying
from app.serve.server import Server
from backends.base import ModelError, UsageError
from backends.remote.model import RemoteContext, RemoteModel
from backends.remote.verifying_server import VerifyingServer
from decoding.drafters.lookup import PromptLookup
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.replied import said
from tests.fixtures.scripted import END, ScriptedModel
from tests.fixtures.served_engine import PATIENCE_SECONDS, connected, post, send

TEXT = [*["the", "cat", "sat", "on", "the", "mat", "and"] * 2, "the", "hat"]
GREEDY = SamplingSettings(temperature=0.0)
KEY = "0123456789abcdef"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([f" {word}" for word in TEXT])


@pytest.fixture
def server(serve: Callable[..., Server], model: ScriptedModel) -> Server:
    return serve(model)


@contextmanager
def reached(server: Server, model: ScriptedModel, key: str = "") -> Iterator[RemoteModel]:
    """The model of a server as another machine has it."""
    with closing(VerifyingServer(server.address, key)) as at:
        tokenizer, path = cast("Any", model.tokenizer), model.info.path
        with closing(RemoteModel(at, at.model(), tokenizer, path, "elsewhere")) as remote:
            yield remote


@pytest.fixture
def elsewhere(server: Server, model: ScriptedModel) -> Iterator[RemoteModel]:
    with reached(server, model) as remote:
        yield remote


def steps(context: RemoteContext) -> Iterator[Step]:
    """A reply with what lookup drafts, to a prompt that was not answered yet."""
    limits = Limits(64, frozenset({END}))
    drafter = PromptLookup()
    for event in generate(context, [0] * 40, GREEDY, limits, drafters=always(drafter)):
        if isinstance(event, Step):
            yield event


def test_a_reply_is_the_models_own_and_drafts_are_accepted(
    elsewhere: RemoteModel, model: ScriptedModel
) -> None:
    passed = list(steps(elsewhere.open(256)))
    assert said(passed) == model.script
    assert sum(step.accepted for step in passed) > len(model.script) / 3
    assert all(step.on_device for step in passed)


def test_a_context_that_the_server_closed_is_read_again(
    elsewhere: RemoteModel, model: ScriptedModel
) -> None:
    """So is one of a server that was started anew, or whose connection was cut."""
    context = elsewhere.open(256)
    passing = steps(context)
    begun = [next(passing) for _ in range(3)]
    elsewhere._server.close_context(context._name)
    assert said([*begun, *passing]) == model.script


def test_a_server_that_is_gone_leaves_what_was_said(elsewhere: RemoteModel, server: Server) -> None:
    context = elsewhere.open(256)
    passing = steps(context)
    begun = [next(passing) for _ in range(3)]
    server.close()
    with pytest.raises(ModelError, match="does not answer") as error:
        next(passing)
    assert "kept" in error.value.remedy
    assert context.tokens == [*[0] * 40, *said(begun)[:-1]]


def test_another_model_at_the_server_ends_the_answer(
    elsewhere: RemoteModel, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = steps(elsewhere.open(256))
    next(passing)
    monkeypatch.setattr(verifying, "_identity", lambda _: "f" * 24)
    active = server.served.engine._active
    assert active is not None
    monkeypatch.setattr(active.session, "model", ScriptedModel(["x"]))
    with pytest.raises(ModelError, match="has changed") as error:
        next(passing)
    assert "this server now runs scripted" in error.value.why


def test_a_server_wants_its_key(serve: Callable[..., Server], model: ScriptedModel) -> None:
    server = serve(model, key=KEY)
    with closing(VerifyingServer(server.address)) as unknown, pytest.raises(UsageError) as error:
        unknown.model()
    assert "wants a key" in str(error.value)
    with reached(server, model, KEY) as remote:
        assert said(steps(remote.open(256))) == model.script


def test_the_context_used_least_lately_makes_room(
    elsewhere: RemoteModel, server: Server, model: ScriptedModel
) -> None:
    first = elsewhere.open(64)
    first.forward([0, 0], 0)
    others = [elsewhere.open(64) for _ in range(verifying.MOST_CONTEXTS)]
    assert said(steps(first)) == model.script  # read again
    assert len({one._name for one in others}) == verifying.MOST_CONTEXTS


def test_what_is_not_used_for_long_is_closed() -> None:
    held, closed = verifying.Verifying(), list[str]()
    for name, used_at in (("old", 0.0), ("new", float("inf"))):
        context = SimpleNamespace(close=lambda name=name: closed.append(name))
        held._contexts[name] = verifying._Opened(cast("Any", None), cast("Any", context), used_at)
    held.close_idle(0.001)
    assert closed == ["old"]
    held.close("unknown")


def test_a_longer_context_than_the_servers_is_refused(elsewhere: RemoteModel) -> None:
    with pytest.raises(UsageError, match="out of range"):
        elsewhere.open(8193)


BODY = {"context": "", "model": "", "n_ctx": 8, "length": 0}
LISTS = {"tokens": [0], "drafted": [], "uniforms": [1.0]}
GREEDILY = {"sampling": {"temperature": 0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"model": "another"}, 409),
        ({"context": "unknown"}, 410),
        ({"length": 1}, 410),
        ({"n_ctx": 9000}, 400),
        ({"tokens": [99]}, 400),
        ({"tokens": [-1]}, 400),
        ({"tokens": [0] * 9, "uniforms": [1.0]}, 400),
        ({"tokens": []}, 400),
        ({"drafted": [0] * 20, "uniforms": [1.0] * 21, "n_ctx": 64}, 400),
        ({"uniforms": []}, 400),
        ({"uniforms": [0.0]}, 400),
        ({"drafted": [0], "uniforms": [], "sampling": None}, 400),
        ({"sampling": {}}, 400),
        ({"unknown": 1}, 400),
    ],
)
def test_a_pass_that_cannot_be_is_refused(
    server: Server, wrong: dict[str, object], status: int
) -> None:
    named = send(server, "GET", "/v1/verify").json["model"]
    body = {**BODY, "model": named, **LISTS, **GREEDILY}
    assert post(server, "/v1/verify", body).status == 200
    answered = post(server, "/v1/verify", {**body, **wrong})
    assert answered.status == status
    assert answered.error["message"]


def test_an_engine_that_fails_ends_the_answer_in_words(
    serve: Callable[..., Server],
) -> None:
    model = ScriptedModel([f" {word}" for word in TEXT], fails_at=2)
    with reached(serve(model), model) as remote:
        context = remote.open(256)
        passing = steps(context)
        said([next(passing), next(passing)])
        with pytest.raises(ModelError, match="refused") as error:
            list(passing)
        assert "the engine failed" in error.value.why


class Held:
    """What passes wait for once it is closed; it tells when one waits."""

    def __init__(self) -> None:
        self.waits, self.may_go = Event(), Event()
        self.may_go.set()

    def wait(self, timeout: float, /) -> bool:
        self.waits.set()
        return self.may_go.wait(timeout)


def test_a_connection_that_is_cut_in_mid_pass_frees_the_context(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, is_gone = Held(), Event()
    server = serve(ScriptedModel(["x"], gate=held))
    monkeypatch.setattr(server.served.metrics.gone, "inc", is_gone.set)
    named = send(server, "GET", "/v1/verify").json["model"]
    body = {**BODY, "model": named, **LISTS, **GREEDILY}
    body["context"] = post(server, "/v1/verify", body).json["context"]
    held.may_go.clear()
    held.waits.clear()
    with connected(server) as connection:
        data = json.dumps(body).encode()
        head = f"POST /v1/verify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + data)
        assert held.waits.wait(PATIENCE_SECONDS)
    assert is_gone.wait(PATIENCE_SECONDS)
    held.may_go.set()
    assert post(server, "/v1/verify", body).status == 410
