"""llama-server beside our methods: it says what we say, and why it does not start."""

import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.bench import llama_server
from app.bench.methods import ours, theirs
from backends.base import ModelError
from backends.engines.model_loading import baseline_engines
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
            told, again, anew = (
                llama_server.answer(address, prompt, GREEDY, 12, goes_on=goes_on)
                for goes_on in (False, True, False)
            )
    assert told["tokens"] == again["tokens"] == anew["tokens"] == said
    assert told["timings"]["prompt_n"] == anew["timings"]["prompt_n"] == len(prompt)
    assert again["timings"]["prompt_n"] < len(prompt)
    assert told["timings"]["predicted_n"] == len(said)
    assert min(told["timings"]["prompt_ms"], told["timings"]["predicted_ms"]) > 0
    with pytest.raises(ModelError, match="llama-server failed"):
        llama_server.answer(address, prompt, GREEDY, 12, goes_on=False)


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_the_engines_own_package_reads_long_prompts_and_forgets_them(
    demo_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llama_cpp import Llama

    read, evaluate = list[int](), Llama.eval

    def counted(llama: Llama, tokens: list[int]) -> None:
        read.append(len(tokens))
        evaluate(llama, tokens)

    monkeypatch.setattr(Llama, "eval", counted)
    with closing(opened_on(demo_file, ctx=1024)) as session:
        prompt = session.template.raw("One, two, three, four. " * 100).tokens
        assert len(prompt) > 512  # what is read at once
        for one in baseline_engines(session.model, 1024, None, plain=True):
            with closing(one):
                method, said = theirs(one, session), list[list[int]]()
                for _ in range(2):
                    method.empty()
                    read.clear()
                    said.append(method.reply(prompt, GREEDY, 4).tokens)
                    assert read[0] == len(prompt)
                assert said[0] == said[1]
