"""Files of requests: answered once each, resumed wherever they were cut."""

import asyncio
import json
import random
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from filelock import FileLock

pytest.importorskip("uvicorn")

from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.serve.batch import answer_batch
from app.serve.served_engine import ServedEngine
from app.serve.server_options import Limits
from app.settings.answering import Answering
from backends.base import ModelError, UsageError
from decoding.sampling.settings import SamplingSettings
from tests.app.conftest import Launch, Specchat
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.settled import settle

DEFAULTS = Answering(SamplingSettings(temperature=50.0, top_k=0, top_p=1.0, min_p=0.0), 12)
ASKS = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEngine]:
    """An engine whose answers depend on their seeds alone."""
    from app.paths import Paths

    home = tmp_path_factory.mktemp("batch")
    model = ScriptedModel([f"word{number} " for number in range(50)])
    options, paths = SessionOptions(draft="off"), Paths(home / "c", home / "d", home / "k")
    engine = Engine(options, paths, opened(model))
    engine.start()
    settle(engine)
    yield ServedEngine(engine, Limits())
    engine.close(60)


def chat(custom_id: str, **body: Any) -> dict[str, Any]:
    url = "/v1/chat/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {**ASKS, **body}}


LINES: list[dict[str, Any]] = [
    *(chat(f"chat {number}") for number in range(12)),
    {**chat("text"), "url": "/v1/completions", "body": {"prompt": "One", "max_tokens": 8}},
    {**chat("a response"), "url": "/v1/responses", "body": {"input": "Hi", "max_output_tokens": 8}},
    chat("refused", temperature=-1),
    chat("chat 3"),
    chat("stream", stream=True),
    {**chat("elsewhere"), "url": "/v1/files"},
    {"custom_id": "no body", "url": "/v1/responses"},
    chat("é 한"),
]


def written(folder: Path, lines: list[dict[str, Any]] = LINES) -> Path:
    asked = folder / "in.jsonl"
    text = "\n".join([*map(json.dumps, lines[:-1]), "", "{", json.dumps(lines[-1])])
    asked.write_text(text, encoding="utf-8")
    return asked


def run(served: ServedEngine, asked: Path, answers: Path) -> tuple[int, int]:
    """Returns how many lines were answered now, and how many failed in all."""
    told: list[int] = []

    def tell(done: int, total: int, left: float) -> None:
        told.append(done)
        assert total == 21
        assert (left > 0) == (done < total)

    done, failed = asyncio.run(answer_batch(asked, answers, served, DEFAULTS, tell))
    assert done == 21
    assert told == [*range(22 - len(told), 22)]
    return len(told), failed


def results(answers: Path) -> dict[str, Any]:
    """What was answered to each request, without what differs between two runs of the same."""
    found: dict[str, Any] = {}
    for line in answers.read_bytes().splitlines():
        answer = json.loads(line)
        error, response = answer["error"], answer["response"]
        key = answer["id"].removeprefix("batch_req_")
        assert key not in found
        body = response and response["body"]
        text = body and (body.get("choices") or body.get("output") or body["error"])
        said = json.dumps(text, sort_keys=True)
        if body and "output" in body:
            said = body["output"][0]["content"][0]["text"]
        found[key] = (error, response and response["status_code"], said)
    return found


@pytest.fixture(scope="module")
def whole(served: ServedEngine, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """All answers, by one run."""
    folder = tmp_path_factory.mktemp("whole")
    run(served, written(folder), folder / "out.jsonl")
    return (folder / "out.jsonl").read_bytes()


def test_each_line_is_answered_in_openais_form(
    served: ServedEngine, whole: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    assert run(served, written(tmp_path), out) == (21, 5)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    answers = [json.loads(line) for line in out.read_bytes().splitlines()]
    for answer in answers:
        assert list(answer) == ["id", "custom_id", "response", "error"]
        assert (answer["response"] is None) == (answer["error"] is not None)
    first = answers[0]["response"]
    assert first["status_code"] == 200
    assert first["body"]["usage"]["completion_tokens"] == 8
    found = results(out)
    assert found["15"][1] == 400
    errors = {key: one[0]["message"] for key, one in found.items() if one[0]}
    assert {key: text.partition(":")[0] for key, text in errors.items()} == {
        "17": "body.stream",
        "18": "url",
        "19": "body is missing",
        "21": "the body is not valid JSON",
    }
    assert [answer["custom_id"] for answer in answers] == [
        *(line["custom_id"] for line in LINES[:19]), None, "é 한",
    ]  # fmt: skip
    assert len({found[str(number)][2] for number in range(1, 13)}) == 12  # each has its own seed
    assert found["4"] == found["16"]  # which follows from its name
    (tmp_path / "other.jsonl").write_bytes(whole)
    assert found == results(tmp_path / "other.jsonl")  # and the same in each run


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_that_was_cut_anywhere_goes_on_there(
    seed: int, served: ServedEngine, whole: bytes, tmp_path: Path
) -> None:
    """Writes only append, so that a killed run leaves a beginning of what it would have written."""
    cut = random.Random(seed).randrange(len(whole)) if seed else 5
    out = tmp_path / "out.jsonl"
    kept = whole[: whole[:cut].rfind(b"\n") + 1]
    out.write_bytes(kept + b"\0" * 40 if seed % 5 == 4 else whole[:cut])  # zeros: a power cut
    assert run(served, written(tmp_path), out) == (21 - kept.count(b"\n"), 5)
    assert out.read_bytes().startswith(kept)
    full = tmp_path / "whole.jsonl"
    full.write_bytes(whole)
    assert results(out) == results(full)
    assert run(served, written(tmp_path), out) == (0, 5)


@pytest.mark.parametrize(
    "content",
    [
        b"my notes",
        b"my notes\n",
        b'{"a": 1}\n',
        b'{"id": "batch_req_1", "custom_id": "x", "response": {"status_code": 9}, "error": null}\n',
        b'{"id": "batch_req_99", "custom_id": null, "response": null, "error": {}}\n',
        b"\x1f\x8b\0\0",
    ],
)
def test_a_file_of_other_things_is_left_alone(
    served: ServedEngine, content: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_bytes(content)
    with pytest.raises(UsageError, match="other things"):
        run(served, written(tmp_path), out)
    assert out.read_bytes() == content


def test_requests_in_flight_together_get_the_same_answers(
    served: ServedEngine, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.turns, "at_once", 4)
    run(served, written(tmp_path), tmp_path / "out.jsonl")
    (tmp_path / "whole.jsonl").write_bytes(whole)
    assert results(tmp_path / "out.jsonl") == results(tmp_path / "whole.jsonl")


def test_what_was_stopped_is_not_answered(
    served: ServedEngine, whole: bytes, tmp_path: Path
) -> None:
    """Neither where the engine goes away, nor where the user interrupts it."""
    out = tmp_path / "out.jsonl"
    asked = written(tmp_path)
    monkey = ServedEngine(served.engine, Limits())

    def stop(done: int, *_: float) -> None:
        if done == 3:
            monkey.turns.close()

    with pytest.raises(ModelError, match="stopped"):
        asyncio.run(answer_batch(asked, out, monkey, DEFAULTS, stop))
    assert out.read_bytes().count(b"\n") == 3

    async def interrupted() -> None:
        come = asyncio.Event()
        work = asyncio.ensure_future(
            answer_batch(asked, out, served, DEFAULTS, lambda *_: come.set())
        )
        await come.wait()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    asyncio.run(interrupted())
    run(served, asked, out)
    (tmp_path / "whole.jsonl").write_bytes(whole)
    assert results(out) == results(tmp_path / "whole.jsonl")


@pytest.mark.nightly
def test_the_command_goes_on_after_it_was_killed(
    launch: Launch, llamacpp: object, tmp_path: Path
) -> None:
    """Each run is killed once so much was written, which may be in mid-answer."""
    moments = 20
    asks = [chat(f"{number}", temperature=0, max_tokens=12) for number in range(moments + 4)]
    for number, line in enumerate(asks):
        line["body"]["messages"] = [{"role": "user", "content": f"What is {number} + {number}?"}]
    asked = written(tmp_path, asks)
    command = ("batch", str(asked), "--model", "demo", "--draft", "lookup")
    straight, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    ended = launch(*command, str(straight))
    _, told = ended.communicate(timeout=600)
    assert ended.returncode == 1, told  # a line is no request
    assert f"{len(asks) + 1} requests, 1 failed" in told.decode()
    draw = random.Random(moments)
    for moment in range(moments):
        process = launch(*command, str(out))
        after = straight.stat().st_size * (moment + draw.random()) / (moments + 1)
        while process.poll() is None and (not out.exists() or out.stat().st_size < after):
            Event().wait(draw.random() / 100)
        process.kill()
        process.communicate()
        left = out.read_bytes()
        out.write_bytes(left[: len(left) - draw.choice([0, 1, 40])])
    last = launch(*command, str(out))
    last.communicate(timeout=600)
    assert last.returncode == 1
    assert results(out) == results(straight)


def test_a_folder_that_is_missing_is_not_made(specchat: Specchat, tmp_path: Path) -> None:
    asked, folder = written(tmp_path), tmp_path / "missing"
    ended = specchat("batch", str(asked), str(folder / "out.jsonl"))
    assert ended.returncode == 2
    assert "the folder is missing" in ended.stderr
    assert not folder.exists()


def test_two_do_not_write_to_one_file(served: ServedEngine, tmp_path: Path) -> None:
    answers = tmp_path / "out.jsonl"
    with FileLock(tmp_path / ".out.jsonl.lock"), pytest.raises(UsageError, match="in use"):
        run(served, written(tmp_path), answers)
    assert not answers.exists()
    run(served, written(tmp_path), answers)
