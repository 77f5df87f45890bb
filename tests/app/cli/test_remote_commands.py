"""Commands with --backend remote, against a replaying server and our own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.remote.address import REMOTE_KEY
from tests.app.conftest import AskJson, Specchat
from tests.fixtures.recorded_servers import DONE, HI, RECORDED, Script, chunk, replaying, usage
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import serving

SAID = [*map(chunk, HI), chunk({}, "stop", usage=usage()), DONE]


@pytest.fixture
def server() -> Iterator[Script]:
    with replaying(Script(events=SAID)) as script:
        yield script


def at(server: Script) -> tuple[str, ...]:
    return "--backend", "remote", "--url", server.url


def test_ask_prints_what_the_server_says(specchat: Specchat, server: Script) -> None:
    ended = specchat("ask", "hi", *at(server))
    assert (ended.returncode, ended.stdout) == (0, "Hello there\n")


def test_tokens_that_the_server_does_not_count_are_not_said_to_be_none(
    specchat: Specchat, server: Script
) -> None:
    server.events = [*map(chunk, HI), chunk({}, "stop"), DONE]
    ended = specchat("ask", "hi", *at(server), on_terminal=True)
    assert "[tokens not told]" in ended.stderr


def test_what_only_a_model_here_tells_is_null(ask_json: AskJson, server: Script) -> None:
    server.events = RECORDED["llama-server"].events
    report = ask_json("hi", *at(server))
    assert report["stats"]["acceptance"] == 0.75
    assert report["server"]["drafting"]["timings.draft_n"] == 12
    assert report["lossless"] is report["token_ids"] is report["draft"]["state"] is None
    zeros = [name for name, value in report["stats"].items() if value == 0]
    assert zeros == ["cached_prompt_tokens"]


def test_chat_keeps_what_was_said_before_a_cut(specchat: Specchat, server: Script) -> None:
    server.events, server.is_cut = SAID[:2], True
    ended = specchat("chat", *at(server), stdin=b"one\ntwo\n")
    assert ended.returncode == 3
    assert ended.stdout.count("Hello there") == 2
    assert "broke off" in ended.stderr
    assert server.asked[1]["messages"][1]["content"] == "Hello there"


def test_no_output_shows_the_key(
    specchat: Specchat, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE_KEY, "sk-nobody-may-see-this")
    server.status, server.kind = 401, "application/json"
    server.events = [b'{"error": {"message": "sk-nobody-may-see-this is wrong"}}']
    ended = specchat("ask", "hi", *at(server))
    assert ended.returncode == 3
    assert "does not take the key" in ended.stderr
    assert "sk-nobody" not in ended.stdout + ended.stderr


def test_models_list(specchat: Specchat, server: Script) -> None:
    assert specchat("models", "list", *at(server)).stdout == "m\n"
    listed = json.loads(specchat("models", "list", "--json", *at(server)).stdout)
    assert listed["models"][0]["owned_by"] == "vllm"


@pytest.mark.parametrize("command", [("serve",), ("batch", "a.jsonl", "b.jsonl"), ("bench",)])
def test_commands_that_need_a_model_here(
    command: tuple[str, ...],
    specchat: Specchat,
    server: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("{}\n")
    ended = specchat(*command, *at(server))
    assert ended.returncode != 0
    assert not server.asked


def test_url_is_missing(specchat: Specchat) -> None:
    ended = specchat("ask", "hi", "--backend", "remote")
    assert ended.returncode == 2
    assert "--url" in ended.stderr


def test_url_alone_is_not_passed_over(specchat: Specchat) -> None:
    ended = specchat("ask", "hi", "--url", "http://127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--backend remote" in ended.stderr


def drafted(count: int, said: str = "Hello") -> list[bytes]:
    timings = {"draft_n": count, "draft_n_accepted": 0, "predicted_n": 1}
    return [chunk({"content": said}, "stop", timings=timings, system_fingerprint="b1"), DONE]


@pytest.mark.parametrize(
    ("count", "other", "verdict"), [(4, "Hello", True), (4, "Help", None), (0, "Hello", None)]
)
def test_verify_compares_with_a_server_without_drafting(
    count: int, other: str, verdict: bool | None, specchat: Specchat, ask_json: AskJson
) -> None:
    with replaying(Script(events=drafted(count))) as one, replaying(Script()) as plain:
        plain.events = drafted(0, other)
        ended = specchat("verify", *at(one), "--reference", plain.url, "--json")
        found: dict[str, Any] = json.loads(ended.stdout)
        assert (found["lossless"], found["complete"]) == (verdict, True)
        assert ended.returncode == (0 if verdict else 1)
        assert {one["temperature"] for one in plain.asked} == {0.0}
        if other == "Help":
            assert "undecided: 12 of 12 texts differ" in found["verdict"]
            assert found["findings"][0]["differs_at"] == 3
        assert ask_json("hi", *at(one))["lossless"] is verdict
        one.events = [event.replace(b'"b1"', b'"b2"') for event in one.events]
        assert ask_json("hi", *at(one))["lossless"] is None


def test_verify_needs_a_reference(specchat: Specchat, server: Script) -> None:
    ended = specchat("verify", *at(server))
    assert ended.returncode == 2
    assert "--reference" in ended.stderr


def test_our_own_server_answers(ask_json: AskJson, tmp_path: Path) -> None:
    model = ScriptedModel(["one ", "two ", "three"])
    with serving(tmp_path / "served", opened(model)) as server:
        where = "--backend", "remote", "--url", f"http://{server.host}:{server.port}"
        report = ask_json("hi", *where)
    assert report["text"] == "one two three"
    assert report["server"]["kind"] == "specchat"
    assert report["stats"]["completion_tokens"] == 4
    assert report["server"]["build"].startswith("specchat-")
