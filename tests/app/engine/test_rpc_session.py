"""Answers of a model with layers on another machine, which is lost in the middle of one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from app.loading.session_options import SessionOptions, check_ranges
from app.paths import Paths
from backends.base import PeerLostError, UsageError
from backends.llamacpp import rpc
from tests.fixtures.rpc_servers import free_port, rpc_server
from tests.fixtures.sessions import GREEDY, conversation

pytestmark = pytest.mark.skipif(not rpc.has_rpc(), reason="this build of llama.cpp has no RPC")


def asked(count: int) -> Request:
    return Request(conversation("Tell me about the sea."), GREEDY, count)


@pytest.mark.slow
def test_a_lost_machine_ends_the_answer_and_the_next_one_loads_the_model_again(
    request: pytest.FixtureRequest, paths: Paths, demo_file: Path
) -> None:
    port = free_port()
    options = SessionOptions(str(demo_file), "off", threads=1, ctx=512, rpc=f"127.0.0.1:{port}")
    engine = Engine(options, paths)
    request.addfinalizer(lambda: engine.close(30.0))
    with rpc_server(port) as process:
        engine.start()
        answer = engine.ask(asked(400))
        answer.listen(lambda: process.kill() if len(answer.reply.token_ids) > 8 else None)
        assert answer.wait(60)
    assert isinstance(answer.error, PeerLostError)
    assert len(answer.reply.token_ids) > 8
    assert answer.text
    again = engine.ask(asked(8))
    assert again.wait(60)
    assert isinstance(again.error, PeerLostError)  # nobody has started it again
    with rpc_server(port):
        last = engine.ask(asked(8))
        assert last.wait(60)
        assert last.error is None
        assert last.token_ids == answer.token_ids[:8]
        assert engine.status.phase is Phase.READY
        assert engine.status.error is None
        loaded = engine.status.loaded
        assert loaded is not None
        assert loaded.info.device == f"RPC: 127.0.0.1:{port}"
        assert loaded.bandwidth is None


@pytest.mark.parametrize("text", ["host", "host:0", "host:65536", "a b:5", "host:5:6", "::1:5"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--rpc cannot be {text!r}")):
        _ = SessionOptions(rpc=f"box:50052,{text}").peers


@pytest.mark.parametrize(
    "options",
    [SessionOptions(gpu_layers=0), SessionOptions(backend="remote")],
    ids=["none", "there"],
)
def test_where_no_layer_would_go_there(options: SessionOptions) -> None:
    with pytest.raises(UsageError, match="--rpc cannot be used with --"):
        check_ranges(replace(options, rpc="box:5"))


def test_addresses() -> None:
    given = SessionOptions(rpc=" box.lan:50052, [fe80::1]:7,")
    assert given.peers == [("box.lan", 50052), ("fe80::1", 7)]
    assert SessionOptions(gpu_layers=5, rpc="box:5").local_layers is None
    assert SessionOptions(gpu_layers=5).local_layers == 5
