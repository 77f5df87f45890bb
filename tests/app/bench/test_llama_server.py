"""llama-server beside our methods: it says what we say, and why it does not start."""

import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.bench import llama_server
from app.bench.methods import ours
from backends.base import ModelError
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.sessions import GREEDY, opened_on


@pytest.mark.skipif(sys.platform == "win32", reason="needs a script that is a program")
def test_why_it_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho loading; echo 'no such option' >&2; exit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    info = ScriptedModel(["a"]).info
    with (
        pytest.raises(ModelError, match="llama-server does not start: no such option"),
        llama_server.llama_server(info, 256, ()),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("llama-server"), reason="llama-server is not installed")
@pytest.mark.parametrize("way", llama_server.WAYS)
def test_it_says_what_we_say(way: str, demo_file: Path) -> None:
    with closing(opened_on(demo_file, ctx=256)) as session:
        prompt = session.template.raw("One, two, three, one, two, three, one,").tokens
        said = ours("off", session, None).reply(prompt, GREEDY, 12).tokens
        info = session.model.info
        with llama_server.llama_server(info, 256, llama_server.WAYS[way]) as address:
            told = llama_server.answer(address, prompt, GREEDY, 12)
    assert told["tokens"] == said
    assert told["timings"]["predicted_n"] == len(said)
    assert min(told["timings"]["prompt_ms"], told["timings"]["predicted_ms"]) > 0
    with pytest.raises(ModelError, match="llama-server failed"):
        llama_server.answer(address, prompt, GREEDY, 12)
