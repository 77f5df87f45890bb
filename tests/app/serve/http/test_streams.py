"""Streams: silences, the queue, clients that go away, and engines that fail."""

import json
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Event

import pytest

pytest.importorskip("uvicorn")

from app.serve import reply_reader as batches
from app.serve.server import Server
from app.serve.server_options import Limits
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.served_engine import (
    CHAT,
    COMPLETIONS,
    HI,
    PATIENCE_SECONDS,
    connected,
    post,
    read_to_end,
    read_until,
    request_bytes,
)

WORDS = [f"word{number} " for number in range(40)]
STREAM = {**HI, "stream": True}
QUICK = Limits(heartbeat_seconds=0.02, check_seconds=0.02)
BEAT = b": the reply is still coming\n\n"
END = b"data: [DONE]\n\n"


def chunks(stream: bytes) -> list[dict[str, object]]:
    """The JSON of all events but the last."""
    lines = [line for line in stream.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def text_of(stream: bytes) -> str:
    """The text of a stream's only choice."""
    choices = [chunk["choices"] for chunk in chunks(stream)]
    return "".join(choice[0]["delta"].get("content", "") for choice in choices)  # type: ignore[index]


def come_true(condition: Callable[[], bool]) -> None:
    """Wait for something that must become true."""
    for _ in range(60_000):
        if condition():
            return
        Event().wait(0.001)
    raise AssertionError("it never became true")


def dropped(connection: socket.socket) -> None:
    """Close a connection as a client does that ended suddenly."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Passes:
    """A gate that lets so many passes through; it closes again behind them."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)

    def allow(self, count: int) -> None:
        self._allowed.release(count)

    def wait(self, seconds: float) -> bool:
        return self._allowed.acquire(timeout=seconds)


def test_headers_come_at_once_and_comments_until_the_first_text(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    with connected(server) as answered, connected(server) as queued:
        for connection in (answered, queued):
            connection.sendall(request_bytes(STREAM))
            assert read_until(connection, BEAT).startswith(b"HTTP/1.1 200")
            read_until(connection, BEAT)  # and another one in the silence
            read_until(connection, BEAT)
        gate.set()
        for connection in (answered, queued):
            stream = read_until(connection, END)
            assert text_of(stream) == "".join(WORDS)


def test_a_comment_comes_with_the_turn_of_a_request_that_waited(serve: Serve) -> None:
    """The silence before the turn and the one after it never add up to two."""
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=replace(QUICK, heartbeat_seconds=1000.0))
    with connected(server) as answered, connected(server) as queued:
        for connection in (answered, queued):
            connection.sendall(request_bytes(STREAM))
            read_until(connection, BEAT)
        gate.set()
        assert read_until(queued, b"data: ").count(BEAT) == 1
        assert BEAT not in read_until(answered, END)


@pytest.mark.slow
def test_comments_come_while_a_prompt_is_read_further(serve: Serve) -> None:
    passes = Passes()
    model = ScriptedModel(WORDS, gate=passes)
    server = serve(model, limits=QUICK)
    long = {"messages": [{"role": "user", "content": "x" * 7000}], "stream": True}
    with connected(server) as connection:
        connection.sendall(request_bytes(long))
        for _ in range(8):
            assert b"data: " not in read_until(connection, BEAT)
            passes.allow(1)
        passes.allow(1000)
        assert text_of(read_until(connection, END)) == "".join(WORDS)
    assert model.passes > 8


def test_steps_within_the_pace_are_one_batch_and_the_end_comes_at_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_PROCESSOR_PACE_SECONDS", 3600.0)
    passes = Passes()
    server = serve(ScriptedModel(WORDS, gate=passes))
    with connected(server) as connection:
        connection.sendall(request_bytes(STREAM))
        passes.allow(3)
        begun = read_until(connection, b"word0")
        passes.allow(100)
        stream = begun + read_until(connection, END)
    said = [chunk["choices"][0]["delta"].get("content") for chunk in chunks(stream)]  # type: ignore[index]
    assert text_of(stream) == "".join(WORDS)
    assert len(list(filter(None, said))) == 2


def test_a_full_queue_is_told_with_when_to_come_again(serve: Serve) -> None:
    gate = Event()
    limits = Limits(waiting=1, heartbeat_seconds=0.02, check_seconds=0.02)
    server = serve(ScriptedModel(WORDS, gate=gate), limits=limits)
    with connected(server) as answered, connected(server) as queued:
        for connection in (answered, queued):
            connection.sendall(request_bytes(STREAM))
            read_until(connection, BEAT)
        refused = post(server, CHAT, HI)
        assert refused.status == 503
        assert refused.error["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) > 0
        gate.set()
        for connection in (answered, queued):
            read_until(connection, END)
    assert post(server, CHAT, HI).status == 200


def test_a_body_is_not_read_where_there_is_no_place_for_it(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=replace(QUICK, waiting=1))
    head, _, _ = request_bytes(STREAM).partition(b"\r\n\r\n")
    with ExitStack() as held:
        arriving = [held.enter_context(connected(server)) for _ in range(2)]
        for connection in arriving:
            connection.sendall(head + b"\r\n\r\n{")
        come_true(lambda: server.served.reading.taken == 2)
        assert post(server, CHAT, HI).status == 503
    come_true(lambda: server.served.reading.taken == 0)
    with connected(server) as answered, connected(server) as queued:
        for connection in (answered, queued):
            connection.sendall(request_bytes(STREAM))
            read_until(connection, BEAT)
        with connected(server) as refused:
            refused.sendall(head + b"\r\n\r\n")  # its body never comes
            assert read_until(refused, b"}").startswith(b"HTTP/1.1 503")
        gate.set()


def test_counts_are_bounded_and_end_with_their_connections(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=replace(QUICK, waiting=2))
    asked = request_bytes(HI, "/v1/messages/count_tokens")
    prompts = server.served.engine._prompts
    with connected(server) as answered:
        answered.sendall(request_bytes(STREAM))
        read_until(answered, BEAT)  # its pass waits, so that nothing is counted
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(connected(server)).sendall(asked)
            come_true(lambda: len(prompts._waiting) == 2)
            refused = post(server, "/v1/messages/count_tokens", HI)
            assert (refused.status, refused.error["type"]) == (503, "overloaded_error")
            wanted = [future for _, future in prompts._waiting]
        come_true(lambda: server.served.counting.taken == 0)
        assert all(future.cancelled() for future in wanted)
        gate.set()
        read_until(answered, END)
    assert post(server, "/v1/messages/count_tokens", HI).json["input_tokens"] > 0


def test_an_answer_that_is_stopped_here_is_to_be_asked_for_again(serve: Serve) -> None:
    model = ScriptedModel(WORDS * 100, rate=400.0)
    server = serve(model)
    for path in (CHAT, "/v1/messages"):
        with connected(server) as connection:
            connection.sendall(request_bytes({**HI, "max_tokens": 9999}, path))
            come_true(lambda: server.served.engine._current is not None)
            assert not server.served.engine.is_answering_user
            server.served.engine._stop_answers()
            told = read_until(connection, b"}}")
        assert told.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in told
        come_true(lambda: server.served.engine._current is None)


def test_metrics_have_the_final_figures_of_an_answer_that_was_stopped(serve: Serve) -> None:
    gate = Passes()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    with connected(server) as connection:
        connection.sendall(request_bytes(STREAM))
        gate.allow(5)
        read_until(connection, b"word3 ")
        answer = server.served.engine._current
        assert answer is not None
        dropped(connection)
        come_true(lambda: server.served.turns.answering == 0)
        assert b"completion_tokens_total 0.0" in server.served.metrics.text()
    gate.allow(1)
    come_true(lambda: answer.is_done)
    assert answer.metrics is not None
    told = f"completion_tokens_total {float(answer.metrics.completion_tokens)}"
    come_true(lambda: told.encode() in server.served.metrics.text())


def test_a_reply_names_the_model_that_gave_it(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    engine = server.served.engine
    paths = (CHAT, COMPLETIONS, "/v1/messages", "/v1/responses")
    body = {**HI, "prompt": "hi", "input": "hi", "max_tokens": 5}
    fields = {CHAT: "messages", COMPLETIONS: "prompt", "/v1/responses": "input"}
    with connected(server) as answered, ExitStack() as held:
        answered.sendall(request_bytes(STREAM))
        read_until(answered, BEAT)
        queued: list[socket.socket] = []
        for path in paths:
            one = {fields.get(path, "messages"): body[fields.get(path, "messages")]}
            longest = {"max_tokens": 5} if path == "/v1/messages" else {}
            connection = held.enter_context(connected(server))
            connection.sendall(request_bytes({**one, **longest}, path))
            queued.append(connection)
        come_true(lambda: server.served.turns.waiting == len(paths))
        assert engine._active is not None
        session = engine._active.session
        session.reference = replace(session.reference, name="another")  # as after /model
        gate.set()
        for connection in queued:
            assert b'"model":"another"' in read_until(connection, b'"usage"')


def test_usage_counts_each_prompt_once_and_tokens_up_to_a_stop_text_as_the_metrics_do(
    serve: Serve,
) -> None:
    server = serve(ScriptedModel(WORDS))
    one = post(server, COMPLETIONS, {"prompt": "longer"}).json["usage"]["prompt_tokens"]
    two = post(server, COMPLETIONS, {"prompt": ["longer", "b"], "n": 2}).json["usage"]
    assert two["prompt_tokens"] == 2 * one - len("onger")
    counted = "specchat_completion_tokens_total"
    before = float(server.served.metrics.text().decode().split(f"\n{counted} ")[1].split()[0])
    stopped = post(server, COMPLETIONS, {"prompt": "hi", "stop": "rd2 word3"}).json
    assert stopped["choices"][0]["text"] == "word0 word1 wo"
    assert stopped["usage"]["completion_tokens"] == 4, "the last one completes the stop text"
    come_true(lambda: f"\n{counted} {before + 4}" in server.served.metrics.text().decode())
    refused = post(server, COMPLETIONS, {"prompt": ["a", "x" * 9000], "stream": True})
    assert refused.error["code"] == "context_length_exceeded"


def test_who_goes_away_while_waiting_leaves_the_queue(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    turns = server.served.turns
    with connected(server) as answered:
        answered.sendall(request_bytes(STREAM))
        read_until(answered, BEAT)
        for body in (STREAM, HI):
            with connected(server) as queued:
                queued.sendall(request_bytes(body))
                come_true(lambda: turns.waiting == 1)
            come_true(lambda: turns.waiting == 0)
        gate.set()
        assert text_of(read_until(answered, END)) == "".join(WORDS)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_who_goes_away_while_being_answered_stops_the_answer_within_a_step(
    serve: Serve, is_streamed: bool
) -> None:
    gate = Passes()
    model = ScriptedModel(WORDS, gate=gate)
    server = serve(model, limits=QUICK)
    engine = server.served.engine
    with connected(server) as connection:
        connection.sendall(request_bytes({**HI, "stream": is_streamed}))
        gate.allow(5)
        come_true(lambda: model.passes == 6)  # the sixth waits
        answer = engine._current
        assert answer is not None
        dropped(connection)
        come_true(lambda: answer.is_stopped)
    gate.allow(1)
    come_true(lambda: answer.is_done)
    assert model.passes == 6
    gate.allow(1000)
    assert post(server, CHAT, HI).json["choices"][0]["message"]["content"] == "".join(WORDS)


def test_clients_that_go_away_at_random_moments_leave_a_server_that_answers(serve: Serve) -> None:
    model = ScriptedModel(WORDS, rate=4000.0)
    server = serve(model, limits=QUICK)
    chance = random.Random(27)
    for _ in range(40):
        body = chance.choice([STREAM, HI, {**STREAM, "n": 3}, {**STREAM, "max_tokens": 3}])
        data = request_bytes(body)
        with connected(server) as connection:
            connection.sendall(data[: chance.choice([len(data), chance.randrange(len(data))])])
            for _ in range(chance.randrange(4)):
                connection.settimeout(0.02)
                try:
                    connection.recv(chance.randrange(1, 2000))
                except TimeoutError:
                    break
            if chance.random() < 0.5:
                dropped(connection)
    assert post(server, CHAT, HI).json["choices"][0]["message"]["content"] == "".join(WORDS)
    turns = server.served.turns
    come_true(lambda: turns.waiting == 0 and turns.answering == 0)
    assert model.most_at_once == 1


def test_an_engine_that_fails_is_told_in_the_form_of_the_reply(serve: Serve) -> None:
    server = serve(ScriptedModel(WORDS, fails_at=3))
    whole = post(server, CHAT, HI)
    assert (whole.status, whole.error["type"]) == (500, "server_error")
    streamed = post(server, CHAT, STREAM)
    assert streamed.status == 200
    last = chunks(streamed.text.encode())[-1]
    assert last["error"]["type"] == "server_error"  # type: ignore[index]
    assert streamed.text.endswith(END.decode())


def test_a_prompt_that_is_too_long_is_told_while_another_is_answered(serve: Serve) -> None:
    model = ScriptedModel(WORDS * 100, rate=400.0)
    server = serve(model)
    with connected(server) as connection:
        connection.sendall(request_bytes(STREAM))
        read_until(connection, b"word3 ")
        long = {"messages": [{"role": "user", "content": "x" * model.n_ctx}], "stream": True}
        refused = post(server, CHAT, long)
        assert refused.error["code"] == "context_length_exceeded"
        assert server.served.turns.answering == 1


def test_the_app_learns_which_program_is_answered(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    engine = server.served.engine
    with connected(server) as connection:
        data = request_bytes(STREAM).replace(b"\r\n\r\n", b"\r\nUser-Agent: editor/1.2 (x)\r\n\r\n")
        connection.sendall(data)
        come_true(lambda: engine.status.program == "editor")
        gate.set()
        read_until(connection, END)
    come_true(lambda: not engine.status.program)


@pytest.mark.parametrize("added", [request_bytes(HI), b"garbage\r\n\r\n", b"\x00" * 100_000])
def test_what_is_sent_before_the_reply_is_complete_is_not_read(serve: Serve, added: bytes) -> None:
    model = ScriptedModel(WORDS)
    server = serve(model)
    with connected(server) as connection:
        connection.sendall(request_bytes(STREAM) + added)
        came = read_to_end(connection)
    assert came.count(b"HTTP/1.1") == 1
    assert text_of(came) == "".join(WORDS)


def test_a_client_that_sends_more_and_goes_away_is_noticed(serve: Serve) -> None:
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    with connected(server) as connection:
        connection.sendall(request_bytes(HI) + request_bytes(HI))
        come_true(lambda: server.served.turns.answering == 1)
    come_true(lambda: server.served.turns.answering == 0)
    gate.set()


def test_slow_senders_lose_their_connection(serve: Serve) -> None:
    server = serve(ScriptedModel(WORDS), limits=Limits(header_seconds=0.05))
    data = request_bytes(HI)
    for begun in (b"", b"POST ", data[:40]):
        with connected(server) as connection:
            with suppress(ConnectionError):  # it was slower than that to send so much
                connection.sendall(begun)
            assert read_to_end(connection) == b""
    server = serve(ScriptedModel(WORDS), limits=Limits(body_seconds=0.05))
    with connected(server) as connection:
        connection.sendall(data[:-5])
        assert read_until(connection, b"}").startswith(b"HTTP/1.1 408")


def test_there_are_only_so_many_connections(serve: Serve) -> None:
    server = serve(ScriptedModel(WORDS), limits=Limits(connections=3))
    with ExitStack() as held:
        kept = [held.enter_context(connected(server)) for _ in range(3)]
        for connection in kept:
            connection.sendall(request_bytes(HI))
            read_until(connection, b"timings")
        with connected(server) as refused:
            assert read_to_end(refused) == b""
    come_true(lambda: not _is_full(server))


def _is_full(server: Server) -> bool:
    with connected(server) as connection:
        connection.sendall(request_bytes(HI))
        return not read_to_end_or(connection, b"timings")


def read_to_end_or(connection: socket.socket, mark: bytes) -> bool:
    """Whether a mark comes before the end."""
    came = b""
    try:
        while mark not in came and (part := connection.recv(65536)):
            came += part
    except ConnectionError:
        return False
    return mark in came


def test_a_stop_text_is_held_back_and_cut_wherever_it_begins(serve: Serve) -> None:
    server = serve(ScriptedModel(["one tw", "o th", "ree fo", "ur"]))
    for stop, text, ended in (
        ("two three", "one ", "stop"),
        (["four", "three"], "one two ", "stop"),
        ("twix", "one two three four", "stop"),
        ("our", "one two three f", "stop"),
        ("one", "", "stop"),
    ):
        body = {**HI, "stop": stop}
        choice = post(server, CHAT, body).json["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, ended)
        streamed = post(server, CHAT, {**body, "stream": True})
        assert text_of(streamed.text.encode()) == text
        continued = post(server, COMPLETIONS, {"prompt": "hi", "stop": stop})
        assert continued.json["choices"][0]["text"] == text


def test_the_longest_answer_is_bounded_and_told(serve: Serve) -> None:
    server = serve(ScriptedModel(WORDS))
    answered = post(server, CHAT, {**HI, "max_tokens": 3}).json
    assert answered["choices"][0]["finish_reason"] == "length"
    assert answered["choices"][0]["message"]["content"] == "".join(WORDS[:3])
    assert answered["usage"]["completion_tokens"] == 3
    huge = post(server, CHAT, {**HI, "max_tokens": 1 << 31}).json
    assert huge["choices"][0]["finish_reason"] == "stop"


def test_the_end_of_the_server_is_told_to_every_request_in_its_own_form(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.serve.server._REFUSE_SECONDS", PATIENCE_SECONDS)
    gate = Event()
    server = serve(ScriptedModel(WORDS, gate=gate), limits=QUICK)
    streams = [(STREAM, CHAT), (STREAM, CHAT)]
    wholes = [(HI, CHAT), (HI, CHAT), ({**HI, "max_tokens": 5}, "/v1/messages")]
    with ExitStack() as held:
        connections: list[socket.socket] = []
        for number, (body, path) in enumerate([*streams[:1], *wholes, *streams[1:]]):
            connection = held.enter_context(connected(server))
            connection.sendall(request_bytes(body, path))
            come_true(lambda number=number: server.served.turns.waiting == number)
            come_true(lambda: server.served.turns.answering == 1)
            connections.append(connection)
        sending = held.enter_context(connected(server))
        sending.sendall(request_bytes(HI)[:-5])
        come_true(lambda: server.served.reading.taken == 1)
        for connection in (connections[0], connections[-1]):
            read_until(connection, BEAT)
        server.served.engine.close(0.0)  # as Ctrl+C does first; the pass goes on behind the gate
        server.close()
        told = [read_to_end(connection) for connection in connections]
        told_while_sending = read_to_end(sending)
    gate.set()
    for stream in (told[0], told[-1]):
        assert b'"code":"answer_stopped"' in stream
    for whole in (*told[1:3], told_while_sending):
        assert whole.startswith(b"HTTP/1.1 503")
        assert json.loads(whole.partition(b"\r\n\r\n")[2])["error"]["code"] == "answer_stopped"
    assert told[3].startswith(b"HTTP/1.1 503")
    assert json.loads(told[3].partition(b"\r\n\r\n")[2])["error"]["type"] == "overloaded_error"
    assert b"disconnects_total 0.0" in server.served.metrics.text()
