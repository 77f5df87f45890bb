"""What was trained here drafts for its model: by name, by kind, by auto, in lists; else refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.engine.session_ranking import list_for
from app.history.store import open_history
from app.learned.registered import Registered, found_here, register
from app.paths import Paths
from backends.engines.backend_selection import LLAMACPP, MLX
from models.metadata.identity import fingerprint
from tests.app.conftest import AskJson, Specchat
from tests.fixtures.heard import hurry
from tests.fixtures.sessions import opened_on
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.last_state import write_last_state

ASK = ("abc abc abc abc", "--temperature", "0", "--max-tokens", "24", "--raw", "--ctx", "256")
NAME = "mine-hydra"

Trained = Callable[..., tuple[Path, Registered]]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture(params=[LLAMACPP, MLX])
def trained(request: pytest.FixtureRequest, tmp_path: Path, paths: Paths) -> Trained:
    """Registers a head of random weights for a tiny model of an engine: (model, entry)."""
    module = {LLAMACPP: "llama_cpp", MLX: "mlx_lm"}[request.param]
    pytest.importorskip(module, reason="the engine is not installed")

    def make(**facts: object) -> tuple[Path, Registered]:
        if request.param == LLAMACPP:
            tiny: Tiny = request.getfixturevalue("tiny")
            model = shutil.copyfile(tiny("qwen3"), tmp_path / "mine.gguf")
        else:
            twin = request.getfixturevalue("twin_of")("qwen3")
            model = Path(shutil.copytree(twin, tmp_path / "mine"))
        head = write_last_state(tmp_path / "a run" / "trained", "hydra", None)
        files = [head / "config.json", head / "model.safetensors"]
        chats = facts.pop("chats", ())
        own = {"method": "hydra", "engine": request.param, "made": "2026-11-27"} | facts
        entry = Registered(NAME, target=fingerprint(model), model=model.name, **own)  # type: ignore[arg-type]
        return model, register(paths, entry, files, chats)  # type: ignore[arg-type]

    return make


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_an_answer_is_the_models_own_however_it_is_named(
    ask_json: AskJson, trained: Trained
) -> None:
    model, entry = trained()
    options = (*ASK, "--model", str(model))
    plain = ask_json(*options, "--draft", "off")
    for draft in ("hydra", NAME, f"hydra:{entry.folder}", f"tree({NAME})", "cascade(lookup,hydra)"):
        found = ask_json(*options, "--draft", draft)
        assert found["token_ids"] == plain["token_ids"]
        assert found["draft"]["drafters"] == [draft]
        if draft == "hydra":  # what it was worth is remembered
            assert found["stats"]["drafted"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_auto_considers_it(trained: Trained) -> None:
    model, _ = trained(acceptance=(0.7, 0.5))
    with closing(opened_on(model, "auto", ctx=256)) as session:
        drafted = [handle.member.name for handle in session.drafting.handles if handle.model]
        assert drafted == ["hydra"]
        (found,) = [one for one in list_for(session).drafters if one.name == "hydra"]
    assert found.why == "last-state head, trained here on 2026-11-27"
    assert found.prior == pytest.approx(0.6)


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_auto_leaves_out_what_was_measured_to_be_seldom_right(trained: Trained) -> None:
    model, _ = trained(acceptance=(0.01,))
    with closing(opened_on(model, "auto", ctx=256)) as session:
        assert "hydra" not in session.drafting.names


@pytest.mark.slow
def test_for_another_model_it_is_refused(specchat: Specchat, trained: Trained, tiny: Tiny) -> None:
    model, entry = trained()
    if model.is_dir():
        shutil.rmtree(model)
        pytest.skip("refused alike")
    for draft, told in (
        (NAME, "not for llama.gguf"),
        (f"hydra:{entry.folder}", "not for llama.gguf"),
    ):
        found = specchat("ask", *ASK, "--model", str(tiny("llama")), "--draft", draft)
        assert told in " ".join(found.stderr.split())
    with model.open("ab") as file:
        file.write(bytes(64))
    found = specchat("ask", *ASK, "--model", str(model), "--draft", NAME)
    assert "before that file changed" in " ".join(found.stderr.split())


def test_list_info_and_remove_know_it(specchat: Specchat, paths: Paths, trained: Trained) -> None:
    with closing(open_history(paths)) as history:
        history.add(history.create("demo"), "user", "A question")
        model, entry = trained(chats=history.marks())
        (mark,) = history.marks()
    removed = specchat("chats", "remove", mark.split()[0])
    told = f"--draft {NAME} learned from it: a removed chat is still in it"
    assert told in " ".join(removed.stderr.split())
    paths.models.mkdir(parents=True)
    here = paths.models / model.name
    model.rename(here)
    facts = json.loads(specchat("models", "info", str(here), "--json").stdout)
    (found,) = [one for one in facts["trained_drafters"] if one["alias"] == NAME]
    assert found["kind"] == "hydra, trained here on 2026-11-27, learnt from your chats"
    assert found["misfit"] is None
    assert found["path"] == str(entry.folder)
    if here.is_file():  # folders there are no models of their own
        listed = " ".join(specchat("models", "list").stdout.split())
        assert f"--draft {NAME}: {found['kind']}" in listed
        assert "a removed chat is still in it: train it anew, or remove it" in listed
    removed = specchat("models", "remove", NAME)
    assert removed.returncode == 0
    assert not entry.folder.exists()
    assert NAME not in specchat("models", "list").stdout


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp", "drafting_pays")
def test_the_bundled_model_has_a_head(ask_json: AskJson, paths: Paths, demo_file: Path) -> None:
    ((entry, found),) = found_here(paths, demo_file, LLAMACPP)
    assert (entry.is_bundled, found.drafter.kind.word, found.misfit) == (True, "eagle3", "")
    assert entry.acceptance
    options = ("Count from one to twenty.", "--temperature", "0", "--max-tokens", "40")
    told = ask_json(*options, "--draft", "eagle3")  # exactness: tests/endtoend
    assert told["stats"]["accepted"] > 0
