"""Several models on one server: which answers, which stay loaded, and who makes room."""

import asyncio
import random
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.serve import served_models
from app.serve.served_models import ServedModels
from app.serve.server import Server
from app.serve.server_options import Limits
from models.metadata.memory_bill import bill, facts_of
from models.reference import Reference
from tests.app.serve.conftest import asking
from tests.app.serve.http.test_streams import BEAT, come_true, dropped
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import (
    CHAT,
    HI,
    connected,
    post,
    read_until,
    request_bytes,
    send,
    serving,
)

QUICK = Limits(heartbeat_seconds=0.02, check_seconds=0.02)


class Loads:
    """Opens models that say their own names, and notes which; gate: what loading waits for."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.sequences = 1
        self.gate = Event()
        self.gate.set()
        self.models: dict[str, ScriptedModel] = {}

    def __call__(
        self, options: SessionOptions, paths: Paths, notify: Callable[[str], None]
    ) -> Session:
        path = Path(str(options.model))
        self.loaded.append(path.stem)
        self.gate.wait(60)
        if path.stem == "broken":
            options = replace(options, model="broken")
        model = self.models.setdefault(path.stem, ScriptedModel(["I ", "am ", path.stem]))
        session = opened(model)(options, paths, notify)
        session.reference, session.sequences = Reference(path.name, path), self.sequences
        return session


@contextmanager
def several(
    folder: Path, names: str, tiny: Callable[..., Path], loads: Loads, **options: Any
) -> Generator[tuple[Server, list[str]], None, None]:
    """A server of models with these names, of growing sizes, and their files."""
    files = [
        Path(shutil.copy(tiny(layers=1 + at), folder / f"{name}.gguf"))
        for at, name in enumerate(names.split())
    ]
    served = tuple(map(str, files))
    asked = SessionOptions(model=served[0], draft="off")
    with serving(folder, loads, asked, models=served, **options) as server:
        yield server, [file.name for file in files]


def said(server: Server, model: str) -> str:
    answered = post(server, CHAT, {**HI, "model": model}).json
    assert answered["model"] == (model or server.served.models.first.name)
    return answered["choices"][0]["message"]["content"]


def loaded(server: Server) -> set[str]:
    listed = send(server, "GET", "/v1/models").json["data"]
    return {model["id"] for model in listed if model["loaded"]}


def test_a_request_chooses_by_name_and_lists_load_nothing(
    tmp_path: Path, tiny_llama: Callable[..., Path]
) -> None:
    loads = Loads()
    with several(tmp_path, "one two broken", tiny_llama, loads) as (server, names):
        one, two, broken = names
        assert [model.id for model in asking(server).models.list()] == names
        for path in ("/health", "/v1/models", f"/v1/models/{two}", "/metrics", "/props"):
            assert send(server, "GET", path).status == 200
        assert loads.loaded == ["one"]
        assert said(server, two) == "I am two"
        assert said(server, one) == said(server, "") == "I am one"
        assert loaded(server) == {one, two}
        refused = post(server, CHAT, {**HI, "model": "three"})
        assert (refused.status, refused.error["code"]) == (404, "model_not_found")
        assert all(name in refused.error["message"] for name in names)
        failed = post(server, CHAT, {**HI, "model": broken})
        assert (failed.status, failed.error["message"]) == (
            500, "broken cannot be loaded: it was told to",
        )  # fmt: skip
        assert said(server, two) == "I am two"
        assert loads.loaded == ["one", "two", "broken"]
        counted = {**HI, "model": two}
        assert post(server, "/v1/messages/count_tokens", counted).json["input_tokens"] > 0


def test_a_stream_hears_of_a_model_that_loads_and_may_leave(
    tmp_path: Path, tiny_llama: Callable[..., Path]
) -> None:
    loads = Loads()
    with several(tmp_path, "one two", tiny_llama, loads, limits=QUICK) as (server, (one, two)):
        loads.gate.clear()
        asked = request_bytes({**HI, "model": two, "stream": True})
        with connected(server) as connection:
            connection.sendall(asked)
            came = read_until(connection, BEAT + b"\r\n")
            while came.count(BEAT) < 4:
                came += read_until(connection, BEAT)
            dropped(connection)
        come_true(lambda: not server.served.turns.answering)
        loads.gate.set()
        assert said(server, one) == "I am one"
        assert said(server, two) == "I am two"
        assert loads.loaded == ["one", "two"]  # it went on loading


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))]
)
def test_the_least_recently_used_make_room_and_only_then(
    seed: int,
    tmp_path: Path,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model of the rule itself: latest ones are kept as long as they fit with the next."""
    draw, loads = random.Random(seed), Loads()
    loads.sequences = 1 + 40 * (seed % 2)
    facts = {f"{name}.gguf": facts_of(tiny_llama(layers=1 + at)) for at, name in enumerate("abcd")}
    needs = {name: bill(one, 512).total for name, one in facts.items()}
    takes = {
        name: needs[name] + bill(one, 512 * loads.sequences).cache - bill(one, 512).cache
        for name, one in facts.items()
    }
    free = int(sum(takes.values()) * draw.uniform(0.3, 0.9))
    monkeypatch.setattr(served_models, "free_for_models", lambda *_: free)
    for model in "abcd":
        loads.models[model] = ScriptedModel(["I ", "am ", model], n_ctx=512)
    with several(tmp_path, "a b c d", tiny_llama, loads) as (server, names):
        used = [names[0]]
        for _ in range(12):
            name = draw.choice(names)
            said(server, name)
            before, used = used, [name, *(one for one in used if one != name)]
            if name not in before:
                sizes = accumulate([needs[name], *(takes[one] for one in used[1:])])
                fitting = [size <= free for size in sizes]
                used = [one for one, fits in zip(used, fitting, strict=True) if fits] or [name]
            assert loaded(server) == set(used)


def test_none_is_unloaded_while_it_is_used_and_idle_ones_are(
    tmp_path: Path, tiny_llama: Callable[..., Path]
) -> None:
    """Also the first one, whose engine the server was given."""
    loads, file = Loads(), tiny_llama(layers=1)
    options = SessionOptions(model=str(file), draft="off")
    with serving(tmp_path, loads, options, unload_after=0.001) as server:
        given = server.served.engine
        come_true(lambda: not server.served.models.first.is_loaded)
        assert send(server, "GET", "/health").status == 200
        assert (loaded(server), loads.loaded) == (set(), [file.stem])
        answered = post(server, CHAT, {**HI, "model": "any"}).json
        assert answered["model"] == file.name
        assert loads.loaded == [file.stem] * 2
        come_true(lambda: not loaded(server))

    async def used() -> None:
        models = ServedModels(given, [str(file)], 0.001)
        models.first.engine = None
        with models.use(models.first):
            engine = await models.engine_of(models.first)
            models._unload_idle(models.first, models.first.used_at)
            assert models.first.engine is engine
        while models.first.is_loaded:
            await asyncio.sleep(0)
        models.close(60)

    asyncio.run(used())
