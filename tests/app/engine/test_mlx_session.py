"""MLX folders in the whole product: asking, drafting, switching models, leaving."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.bench.methods import methods
from app.bench.suites import SUITES
from app.engine.answer import Stage
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.session_opening import open_session
from app.engine.session_ranking import list_for, rank
from app.engine.status import Loaded, Phase
from app.learned.speeds import memory_bandwidth, mlx_bandwidth
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends import mlx
from backends.engines import backend_selection
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import Machine
from backends.mlx import context as mlx_context
from decoding.events import FinishReason
from decoding.sampling.distribution import SamplingSettings
from tests.app.conftest import AskJson, Specchat
from tests.app.engine.conftest import Start
from tests.fixtures.sessions import answered, conversation

SmallMlx = Callable[..., Path]
TinyLlama = Callable[..., Path]
MAC = Machine(is_apple_silicon=True, has_llamacpp=True, has_mlx=True)
GREEDY = ("--temperature", "0", "--max-tokens", "24")


def test_a_folder_answers_the_same_with_every_drafter(
    ask_json: AskJson, small_mlx: SmallMlx
) -> None:
    folder, drafter = str(small_mlx("plain")), str(small_mlx("plain", noise=0.1))
    plain = ask_json("hi", "--model", folder, "--draft", "off", *GREEDY)
    assert plain["model"]["backend"] == "mlx"
    assert len(plain["token_ids"]) == 24
    for spec in ("lookup", "ngram", "auto", drafter):
        found = ask_json("hi", "--model", folder, "--draft", spec, *GREEDY)
        assert found["draft"]["drafters"]
        assert found["token_ids"] == plain["token_ids"]


def test_threads_that_mean_nothing_are_told_and_the_copy_that_is_made_too(
    small_mlx: SmallMlx,
) -> None:
    told: list[str] = []
    options = SessionOptions(str(small_mlx("plain")), draft="self:q4_0", threads=1)
    session = open_session(options, Paths.of_this_user(), told.append)
    try:
        assert any("--threads has no effect" in note for note in session.notes)
    finally:
        session.close()
    begin = "making the self-drafter q4_0 (a copy in 4 bits)"
    assert begin in told
    assert any(line.startswith(f"{begin}: ") for line in told)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_is_not_whole_is_an_error_of_the_model(
    specchat: Specchat, small_mlx: SmallMlx, tmp_path: Path, missing: str
) -> None:
    folder = Path(shutil.copytree(small_mlx("plain"), tmp_path / "model"))
    (folder / missing).unlink()
    ended = specchat("ask", "hi", "--model", str(folder))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert missing in ended.stderr
    assert "again." in ended.stderr


@pytest.mark.usefixtures("llamacpp")
def test_on_apple_silicon_a_readable_file_runs_with_mlx_and_others_do_not(
    ask_json: AskJson, tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tiny_llama(form="gpt2"))
    asked = ("hi", "--draft", "off", *GREEDY)
    elsewhere = ask_json(*asked, "--model", file)
    monkeypatch.setattr(backend_selection, "this_machine", lambda: MAC)
    found = ask_json(*asked, "--model", file)
    assert (elsewhere["model"]["backend"], found["model"]["backend"]) == ("llamacpp", "mlx")
    assert found["token_ids"] == elsewhere["token_ids"]
    other = ask_json(*asked, "--model", str(tiny_llama(form="spm")))
    assert other["model"]["backend"] == "llamacpp"
    told = ask_json(*asked, "--model", file, "--backend", "llamacpp")
    assert told["model"]["backend"] == "llamacpp"


@pytest.mark.usefixtures("llamacpp")
def test_models_of_both_backends_draft_for_each_other(
    ask_json: AskJson, small_mlx: SmallMlx, tiny_llama: TinyLlama
) -> None:
    folder, file = str(small_mlx("plain")), str(tiny_llama(form="gpt2"))
    for model, drafter, backend in ((folder, file, "mlx"), (file, folder, "llamacpp")):
        plain = ask_json("hi", "--model", model, "--draft", "off", *GREEDY)
        found = ask_json("hi", "--model", model, "--draft", drafter, *GREEDY)
        assert found["draft"]["drafters"][0] == drafter
        assert found["model"]["backend"] == backend
        assert found["token_ids"] == plain["token_ids"]


def test_a_folder_that_was_asked_for_answers_the_next_time_too(
    ask_json: AskJson, small_mlx: SmallMlx
) -> None:
    ask_json("hi", "--model", str(small_mlx("plain")), "--draft", "off", *GREEDY)
    again = ask_json("hi", "--draft", "off", *GREEDY)
    assert again["model"]["path"] == str(small_mlx("plain"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "llamacpp"), "llama.cpp cannot run"),
        (("--gpu-layers", "3"), "--gpu-layers has no effect with MLX"),
        (("--kv", "q8_0"), "--kv q8_0 cannot be used with MLX"),
    ],
)
def test_what_does_not_fit_mlx_is_a_usage_error(
    specchat: Specchat, small_mlx: SmallMlx, arguments: tuple[str, ...], words: str
) -> None:
    ended = specchat("ask", "hi", "--model", str(small_mlx("plain")), *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_drafters_for_a_folder_are_ranked(small_mlx: SmallMlx, home: Path) -> None:
    paths = Paths.of_this_user()
    shutil.copytree(small_mlx("plain", num_hidden_layers=1), paths.models / "small-mlx")
    found = rank(SessionOptions(str(small_mlx("plain")), threads=1), paths, lambda text: None)
    by_name = {one.name: one for one in found.drafters}
    assert by_name["lookup"].is_compatible
    assert by_name["small-mlx"].why == "the same tokens as the model"


def test_the_bench_compares_with_mlx_lm(small_mlx: SmallMlx, tmp_path: Path) -> None:
    drafter = str(small_mlx("plain", noise=0.1))
    options = SessionOptions(str(small_mlx("plain")), draft="off", threads=1)
    session = open_session(options, Paths.of_this_user(), lambda text: None)
    environment = session.environment(lambda text: None)
    found = methods(session, environment, drafter, tmp_path, SUITES["quick"])
    try:
        names = [method.name for method in found.chosen]
        assert names[-2:] == ["mlx-lm", "mlx-lm speculative"]
        prompt = session.template.raw("one two one two").tokens
        replies = [
            method.reply(prompt, SamplingSettings(temperature=0.0), 16).tokens
            for method in found.chosen
        ]
        assert all(tokens == replies[0] for tokens in replies)
    finally:
        found.close()
        session.close()


def test_the_bandwidth_of_the_gpu_is_mlxs_own_and_kept(
    small_mlx: SmallMlx, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlx.load(small_mlx("plain"))
    info = replace(model.info, device="GPU: a Mac")
    model.close()
    reads = [Bandwidth(1e11, "measured: once"), Bandwidth(2e11, "measured: again")]
    monkeypatch.setattr("app.learned.speeds.bandwidth_of_mlx", lambda: reads.pop(0))
    paths = Paths.of_this_user()
    found = [memory_bandwidth(info, paths) for _ in range(2)] + [mlx_bandwidth(paths, again=True)]
    assert [one.source for one in found if one] == [
        "measured: once", "measured: once", "measured: again",
    ]  # fmt: skip


def asked(engine: Engine) -> tuple[tuple[int, ...], Loaded]:
    """The answer's tokens, and what is loaded by then."""
    tokens, loaded = answered(engine, "hi").token_ids, engine.status.loaded
    assert loaded is not None
    return tokens, loaded


@pytest.mark.usefixtures("llamacpp")
def test_models_of_both_backends_follow_each_other(
    start: Start, small_mlx: SmallMlx, tiny_llama: TinyLlama
) -> None:
    folder, other, file = small_mlx("plain"), small_mlx("sliding"), tiny_llama(form="gpt2")
    engine = start(folder, "lookup")
    first, loaded = asked(engine)
    assert loaded.info.backend == "mlx"
    for path, backend in ((file, "llamacpp"), (folder, "mlx"), (other, "mlx"), (folder, "mlx")):
        engine.load(str(path))
        tokens, loaded = asked(engine)
        assert loaded.info.backend == backend
        assert loaded.info.path == path
        assert (tokens == first) == (path == folder)


def test_a_folder_that_cannot_be_loaded_leaves_the_one_before(
    start: Start, small_mlx: SmallMlx, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(small_mlx("plain"), damaged)
    (damaged / "tokenizer.json").write_text("{")
    engine = start(small_mlx("plain"), "lookup")
    first, _ = asked(engine)
    engine.load(str(damaged))
    again, loaded = asked(engine)
    assert (again, loaded.info.path) == (first, small_mlx("plain"))


def test_leaving_in_mid_answer_is_clean(start: Start, small_mlx: SmallMlx) -> None:
    engine = start(small_mlx("plain", max_position_embeddings=8192), "lookup")
    answer = engine.ask(Request(conversation("hi"), SamplingSettings(temperature=0.0), 8000))
    while answer.stage is not Stage.ANSWERING:
        assert not answer.wait(0.01)
    assert engine.close(30.0)
    assert answer.finish_reason in (FinishReason.CANCELLED, FinishReason.STOP)
    assert engine.status.phase is Phase.CLOSED


def test_whoever_lists_drafters_runs_no_pass(
    small_mlx: SmallMlx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done on another thread than the engine's, which alone may run the model."""
    options = SessionOptions(str(small_mlx("plain")), draft="lookup")
    with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
        listed = {pair.name: pair for pair in list_for(session).drafters}
        assert listed["lookahead"].is_compatible
    passes: list[str] = []

    def refused(*_: object) -> str:
        passes.append("of a tree")
        return "cannot run trees on this thread"

    undrafted = replace(options, draft="off")
    with closing(open_session(undrafted, Paths.of_this_user(), lambda _: None)) as session:
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as another:
            patch.setattr(mlx_context, "tree_refusal", refused)
            listed = another.submit(list_for, session).result().drafters
        assert not passes
        assert next(pair for pair in listed if pair.name == "lookup").break_even
        assert session.context.facts.tree_refusal == ""
