"""A server elsewhere as what answers: what each tells, stops, continuations, tools and faults."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.remote_session import RemoteSession, open_remote
from app.engine.reply import Reply, Request
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.remote.address import REMOTE_KEY
from app.tools.toolbox import calls_in
from backends.base import ServerError, SpecchatError, UsageError
from backends.chat.message import Message, Tool, ToolCall
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.events import FinishReason
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.recorded_servers import (
    DONE,
    HI,
    JSON_TYPE,
    RECORDED,
    Script,
    chunk,
    replaying,
    usage,
)

KEY = "sk-a-key-that-nobody-may-see"
PLAIN = [*map(chunk, HI), chunk({}, "stop", usage=usage()), DONE]


@pytest.fixture
def server() -> Iterator[Script]:
    with replaying(Script(events=PLAIN)) as script:
        yield script


def session_on(server: Script, **options: Any) -> RemoteSession:
    options = {"backend": "remote", "url": server.url, **options}
    return open_remote(SessionOptions(**options), Paths.of_this_user(), lambda _: None)


def request(*turns: Message, **more: Any) -> Request:
    asked = Conversation("Be brief.", [*turns] or [Message("user", "Hi")])
    return Request(asked, SamplingSettings(), 64, **more)


def answered(
    session: RemoteSession, asked: Request | None = None, is_stopped: Callable[[], bool] = bool
) -> Reply:
    reply = Reply(asked or request())
    prompt, _ = session.prompt(reply.request)
    with closing(session.stream(prompt, reply, is_stopped)) as stream:
        for _ in stream:
            pass
    return reply


TOLD = {
    "llama-server": (4096, 12, 9, "timings.draft_n"),
    "mlx_lm.server": (None, None, None, None),
    "vLLM": (32768, 129, 10, "metrics.speculative_decoding.num_draft_tokens"),
    "SGLang": (8192, 20, 9, "sglext.spec_tokens_details.spec_accept_length"),
    "LM Studio": (None, 40, 30, "stats.rejected_draft_tokens_count"),
    "Ollama": (None, None, None, None),
}


@pytest.mark.parametrize("kind", RECORDED)
def test_what_each_server_tells(kind: str, server: Script) -> None:
    context, drafted, accepted, named = TOLD[kind]
    server.models, server.events = RECORDED[kind].models, RECORDED[kind].events
    session = session_on(server)
    assert session.kind.name == kind
    assert session.context_size == context or any("assumed" in one for one in session.notes)
    reply = answered(session)
    assert reply.text.endswith("Hello there")
    assert reply.finish_reason is FinishReason.STOP
    report = session.report(reply)
    stats = report["stats"]
    assert (stats["drafted"], stats["accepted"]) == (drafted, accepted)
    assert (stats["prompt_tokens"], stats["completion_tokens"]) == (10, 4 if kind == "vLLM" else 2)
    assert report["lossless"] is None
    assert stats["speedup"] is None
    assert stats["steps"] is None
    told = report["server"]["drafting"]
    assert named in told if named else told is None
    assert session.metrics(reply).comparison.words == ""


def test_thinking_is_read_as_a_model_writes_it(server: Script) -> None:
    server.events = RECORDED["vLLM"].events
    assert answered(session_on(server)).text == "<think>\nLet me see.\n</think>\n\nHello there"


def test_what_is_sent(server: Script) -> None:
    session = session_on(server)
    call = ToolCall("abcdefghi", "look", '{"at": 1}')
    turns = (
        Message("user", "Hi"),
        Message("assistant", "<think>\nhm\n</think>\n\nI look.", (call,)),
        Message("tool", "nothing", answers="abcdefghi"),
    )
    tool = Tool("look", "Looks.", '{"type": "object"}')
    answered(session, request(*turns, tools=(tool,), options=ReplyOptions(stops=("END",))))
    (body,) = server.asked
    assert [one["role"] for one in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["messages"][2]["content"] == "I look."
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"at": 1}'
    assert body["tools"][0]["function"]["name"] == "look"
    assert (body["stop"], body["max_tokens"], body["stream"]) == (["END"], 64, True)
    assert (body["top_k"], body["repetition_penalty"]) == (40, 1.0)


@pytest.mark.parametrize("arguments", ['{"path": "</tool_call>"}', '{"path": "a.md"}'])
def test_calls_are_read_whatever_they_say(arguments: str, server: Script) -> None:
    begun = {"index": 0, "id": "1", "function": {"name": "read", "arguments": arguments[:5]}}
    rest = {"index": 0, "function": {"arguments": arguments[5:]}}
    server.events = [
        chunk({"content": "I read."}),
        chunk({"tool_calls": [begun]}),
        chunk({"tool_calls": [rest]}, "tool_calls"),
        DONE,
    ]
    session, tools = session_on(server), (Tool("read", "", '{"type": "object"}'),)
    reply = answered(session, request(tools=tools))
    prompt, _ = session.prompt(reply.request)
    (call,) = calls_in(reply.text, prompt.form, tools)
    assert (call.name, json.loads(call.arguments)) == ("read", json.loads(arguments))
    assert reply.finish_reason is FinishReason.STOP


def test_marks_of_calls_in_a_text_call_nothing_without_tools(server: Script) -> None:
    said = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    server.events = [chunk({"content": said}, "stop"), DONE]
    session = session_on(server)
    reply = answered(session)
    assert calls_in(reply.text, session.prompt(reply.request)[0].form, ()) == ()


def test_an_answer_is_continued_where_the_server_can(server: Script) -> None:
    answered(session_on(server), request(partial="One, two"))
    (body,) = server.asked
    assert body["messages"][-1] == {"role": "assistant", "content": "One, two"}
    assert body["continue_final_message"]
    server.models = RECORDED["LM Studio"].models
    with pytest.raises(UsageError, match="not known to continue"):
        answered(session_on(server), request(partial="One, two"))


def test_settings_that_a_server_does_not_take_are_told_once(server: Script) -> None:
    server.models = RECORDED["Ollama"].models
    session = session_on(server)
    assert "top_k, min_p" in session.prompt(request())[0].note
    assert session.prompt(request())[0].note == ""
    report = session.report(answered(session))
    assert report["sampling"]["top_k"] is None
    assert "top_k" not in server.asked[0]


@pytest.mark.parametrize(("kind", "top_k"), [("SGLang", -1), ("vLLM", -1), ("mlx_lm.server", 0)])
def test_all_tokens_as_each_server_has_it(kind: str, top_k: int, server: Script) -> None:
    server.models = RECORDED[kind].models
    answered(session_on(server), replace(request(), settings=SamplingSettings(top_k=0)))
    assert server.asked[0]["top_k"] == top_k


def test_schema_is_sent_and_what_no_server_takes_is_refused(server: Script) -> None:
    session, schema = session_on(server), Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
    answered(session, request(options=ReplyOptions(grammar=schema)))
    assert server.asked[0]["response_format"]["json_schema"]["schema"] == {"type": "object"}
    gbnf = Grammar(GrammarKind.GBNF, "root ::= 'a'")
    with pytest.raises(UsageError, match="grammar"):
        session.prompt(request(options=ReplyOptions(grammar=gbnf)))


def test_predictions_go_to_a_server_that_takes_them(server: Script) -> None:
    listed = {"data": [{"id": "m", "owned_by": "specchat", "max_model_len": 64}]}
    details = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}
    server.models = listed
    server.events = [
        *map(chunk, HI),
        chunk({}, "stop", usage=usage(completion_tokens_details=details)),
        DONE,
    ]
    session = session_on(server)
    options = ReplyOptions(prediction="def f():")
    asked = request(options=options, documents=lambda: [("a.py", "x = 1")])
    report = session.report(answered(session, asked))
    assert server.asked[0]["prediction"] == {"type": "content", "content": "def f():\n\nx = 1"}
    assert report["draft"]["predicted"] == {"accepted": 3, "rejected": 1}
    server.models = RECORDED["vLLM"].models
    answered(session_on(server), asked)
    assert "prediction" not in server.asked[1]


def test_a_stop_ends_a_silent_answer_at_once_and_closes_its_connection(server: Script) -> None:
    silent, is_stopped = Event(), Event()

    def gate(number: int) -> None:
        if number:  # the stop comes while nothing does
            is_stopped.set()
            silent.wait(60)

    server.events = [
        PLAIN[0],
        *[chunk({"content": "x" * 10_000})] * 1000,
    ]  # more than fits a socket
    server.gate = gate
    reply = answered(session_on(server), is_stopped=is_stopped.is_set)
    assert reply.finish_reason is FinishReason.CANCELLED
    assert reply.text in ("", "Hello")
    silent.set()
    assert server.gone.wait(60)


@pytest.mark.parametrize("events", range(3))
def test_a_connection_cut_at_each_event_keeps_what_was_said(events: int, server: Script) -> None:
    server.events, server.is_cut = PLAIN[:events], True
    reply = Reply(request())
    session = session_on(server)
    with pytest.raises(ServerError, match="broke off"):
        for _ in session.stream(session.prompt(reply.request)[0], reply, bool):
            pass
    assert reply.text == "Hello there"[: (0, 5, 11)[events]]
    assert reply.finish_reason is None


@pytest.mark.parametrize("is_cut", [True, False])
def test_an_answer_that_has_ended_is_whole_without_its_figures(
    is_cut: bool, server: Script
) -> None:
    server.events, server.is_cut = PLAIN[:3], is_cut
    assert answered(session_on(server)).finish_reason is FinishReason.STOP


def test_the_end_of_a_stream_without_the_end_of_the_answer_is_told(server: Script) -> None:
    server.events = PLAIN[:2]
    with pytest.raises(ServerError, match="no end"):
        answered(session_on(server))


FAILED = b'data: {"error": {"message": "CUDA out of memory", "code": 500}}\n\n'
FAULTS = {
    "wrong key": (401, JSON_TYPE, b'{"error": {"message": "Incorrect key: %b"}}', "key"),
    "forbidden": (403, JSON_TYPE, b'{"detail": "no"}', "key"),
    "no such model": (404, JSON_TYPE, b'{"error": "model \'m\' not found"}', "not found"),
    "bad request": (400, JSON_TYPE, b'{"object": "error", "message": "too long"}', "too long"),
    "no such address": (404, "text/html", b"<h1>Not found</h1>", "ends in /v1"),
    "loading": (503, JSON_TYPE, b'{"error": {"message": "Loading model"}}', "in a moment"),
    "busy": (429, JSON_TYPE, b"{}", "429"),
    "broken": (500, "text/html", b"<h1>Oops</h1>", "has failed"),
    "redirect": (302, JSON_TYPE, b"", "leads elsewhere"),
    "page": (200, "text/html", b"<html>Sign in</html>", "does not speak"),
    "other JSON": (200, JSON_TYPE, b"[1]", "does not speak"),
    "error in mid-answer": (200, "text/event-stream", PLAIN[0] + FAILED, "Ask again"),
    "error as its own event": (200, "text/event-stream", b'error: {"error": "no"}\n\n', "no"),
    "not JSON": (200, "text/event-stream", b"data: {\xff\n\n", "does not speak"),
    "deep": (200, "text/event-stream", b"data: " + b"[" * 200_000 + b"\n\n", "does not speak"),
    "no end of line": (200, "text/event-stream", b"data: " + b"x" * (5 << 20), "larger than"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_servers_are_errors_that_show_no_key(
    name: str, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE_KEY, KEY)
    server.status, server.kind, body, told = FAULTS[name]
    server.events = [body.replace(b"%b", KEY.encode())]
    with pytest.raises(ServerError) as failed:
        answered(session_on(server))
    assert told in str(failed.value)
    assert server.keys[-1] == f"Bearer {KEY}"
    assert KEY not in str(failed.value) + repr(failed.value)
    assert KEY not in json.dumps([str(one) for one in failed.value.__dict__.values()])


def test_what_is_not_utf_8_and_what_drives_terminals_is_text(server: Script) -> None:
    odd = (
        b'data: {"choices": [{"delta": {"content": "a\xffb\\u001b[31m"}, "finish_reason": "stop"}]}'
    )
    server.events = [odd + b"\r\n\r\n", DONE]
    assert answered(session_on(server)).text == "a\ufffdb\x1b[31m"


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], [{"delta": None}], [{"delta": 1}]])
def test_parts_of_any_type_are_no_crash(value: object, server: Script) -> None:
    odd = {"choices": value, "usage": value, "timings": value, "metrics": value, "error": None}
    calls = {"tool_calls": [value, {"index": -1, "function": value}]}
    server.events = [
        f"data: {json.dumps(odd)}\n\n".encode(),
        chunk(calls, "stop"),
        DONE,
    ]
    assert answered(session_on(server)).finish_reason is FinishReason.STOP


def test_an_answer_that_is_not_streamed_is_read(server: Script) -> None:
    choice = {"message": {"content": "Hello"}, "finish_reason": "length"}
    whole = {"choices": [choice], "usage": usage(1)}
    server.kind, server.events = JSON_TYPE, [json.dumps(whole).encode()]
    reply = answered(session_on(server))
    assert (reply.text, reply.finish_reason) == ("Hello", FinishReason.LENGTH)


@pytest.mark.parametrize("models", [{"data": []}, {"models": []}, {"data": [1]}])
def test_a_server_without_a_model(models: dict[str, Any], server: Script) -> None:
    server.models = models
    with pytest.raises(ServerError):
        session_on(server)


def test_https_where_the_server_speaks_http(server: Script) -> None:
    with pytest.raises(ServerError, match=r"(?s)does not answer as https.*http://") as failed:
        session_on(Script(url=server.url.replace("http:", "https:")))
    assert "_ssl.c" not in str(failed.value)


def test_a_short_key_garbles_no_text(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE_KEY, "wrong")
    server.status, server.kind = 401, JSON_TYPE
    server.events = [b'{"error": {"message": "the key is missing or wrong"}}']
    with pytest.raises(ServerError, match="missing or wrong"):
        answered(session_on(server))


def test_a_port_where_nothing_listens() -> None:
    with pytest.raises(ServerError, match="cannot be reached"):
        session_on(Script(url="http://127.0.0.1:9/v1"))


def test_which_model_answers(server: Script) -> None:
    listed = [{"id": name, "owned_by": "vllm", "max_model_len": 9} for name in "abc"]
    server.models = {"data": listed}
    assert session_on(server).name == "a"
    named = session_on(server, model="b")
    assert named.name == "b"
    answered(named, replace(request(), model="c"))
    assert server.asked[0]["model"] == "c"


def test_a_name_that_the_only_model_ignores_is_not_shown_as_its_own(server: Script) -> None:
    server.models = RECORDED["llama-server"].models
    session = session_on(server, model="nosuch")
    assert session.name == "m"
    assert any(note.endswith("does not list nosuch: m answers") for note in session.notes)
    server.models = RECORDED["mlx_lm.server"].models
    assert session_on(server, model="nosuch").name == "nosuch"


def test_nothing_is_asked_offline(server: Script) -> None:
    with pytest.raises(SpecchatError, match="offline"):
        session_on(server, offline=True)
    assert not server.keys
