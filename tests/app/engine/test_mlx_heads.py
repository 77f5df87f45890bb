"""What was trained for an MLX model drafts for it in sessions: found, measured, billed, refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.drafting.draft_spec import head_of_catalogue
from app.engine.session_opening import open_session
from app.engine.session_ranking import list_for
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends import mlx
from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.files.gguf_drafter import TrainedKind
from backends.mlx.heads.head import load_head
from models import catalogue
from models.hub.progress import hub_cache
from models.metadata.memory_bill import bill
from models.metadata.trained_drafters import found_for, head_facts
from models.reference import HubReference, Reference, entry_of
from tests.app.conftest import AskJson, Specchat
from tests.fixtures.heard import hurry
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.mlx_pairs import FOLDER_WORDS, FolderPair

ASK = ("abc abc abc abc", "--temperature", "0", "--max-tokens", "24", "--raw", "--ctx", "256")
SLOW = pytest.mark.slow
FULL = ("abc abc abc abc", "--temperature", "0", "--max-tokens", "400", "--raw", "--ctx", "48")
QUICK = ("beside", "eagle3")
KINDS = [*QUICK, *(pytest.param(one, marks=SLOW) for one in FOLDER_WORDS if one not in QUICK)]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_models_own_with_each_kind_of_head(
    ask_json: AskJson, folder_pair: FolderPair, kind: str
) -> None:
    (model, head), word = folder_pair(kind), FOLDER_WORDS[kind]
    options = (*ASK, "--model", str(model))
    plain = ask_json(*options, "--draft", "off")
    for draft in (word, f"{word}:{head}"):
        found = ask_json(*options, "--draft", draft)
        assert found["token_ids"] == plain["token_ids"]
        assert found["draft"]["drafters"] == [draft]
        if draft == word:  # what it was worth is remembered
            assert found["stats"]["by_drafter"][draft]["drafted"] > 0
            assert found["model"]["backend"] == "mlx"


@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize("kind", KINDS)
def test_two_contexts_of_a_head_draft_until_the_models_is_full(
    ask_json: AskJson, folder_pair: FolderPair, kind: str
) -> None:
    (model, head), word = folder_pair(kind), FOLDER_WORDS[kind]
    options = (*FULL, "--model", str(model))
    plain = ask_json(*options, "--draft", "off")
    assert plain["finish_reason"] == "context"
    named = f"{word}:{head}"
    found = ask_json(*options, "--draft", f"{word},{named}")
    assert found["draft"]["drafters"] == [word, named]
    assert found["stats"]["drafted"] > 0
    assert found["finish_reason"] == "context"
    assert found["token_ids"] == plain["token_ids"]


@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
def test_auto_finds_what_lies_beside_a_model(folder_pair: FolderPair) -> None:
    model, _ = folder_pair("beside")
    options = SessionOptions(str(model), draft="auto", ctx=256)
    with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
        names = [one.member.name for one in session.drafting.handles if one.model]
        assert names == ["mtp"]
        (found,) = [one for one in list_for(session).drafters if one.name == "mtp"]
    assert found.is_compatible
    assert found.why.startswith("next-token layers beside the model")


def test_info_and_list_tell_heads_from_models(specchat: Specchat, folder_pair: FolderPair) -> None:
    model, head = folder_pair("beside")
    facts = json.loads(specchat("models", "info", str(model), "--json").stdout)
    (found,) = facts["trained_drafters"]
    told = (found["alias"], found["kind"], found["path"], found["misfit"])
    assert told == ("mtp", "next-token layers", str(head), None)
    here = Path(shutil.copytree(head, Paths.of_this_user().models / "mtp-mlx"))
    listed = json.loads(specchat("models", "list", "--json").stdout)["models"]
    (one,) = [each for each in listed if each["path"] == str(here)]
    assert one["trained_drafter"] == "next-token layers"
    refused = specchat("ask", "hi", "--model", str(here))
    assert refused.returncode == 1
    words = " ".join(refused.stderr.split())
    assert "it is the next-token layers of a model" in words
    assert "--draft mtp:" in words


@pytest.fixture
def undrafted(ask_json: AskJson) -> Callable[..., str]:
    """Asks, and returns why nothing drafted; the answer comes all the same."""

    def ask(model: Path, draft: str) -> str:
        found = ask_json(*ASK, "--model", str(model), "--draft", draft)
        assert found["token_ids"]
        assert found["draft"]["state"] == "off"
        return found["draft"]["reason"]

    return ask


def test_a_head_that_is_none_or_not_for_mlx_is_refused_in_words(
    undrafted: Callable[..., str], small_mlx: Callable[..., Path], tiny: Tiny, tmp_path: Path
) -> None:
    alone = Path(shutil.copytree(small_mlx("plain"), tmp_path / "one"))
    assert "it brings none, and the catalogue names none" in undrafted(alone, "mtp")
    file = f"eagle3:{tiny('eagle3')}"
    words = "MLX reads heads in folders of safetensors, and this is a file"
    assert words in undrafted(small_mlx("plain"), file)
    name = "Qwen3.8-27B-MTP-4bit"  # as a published head is named
    model = Path(shutil.copytree(small_mlx("plain"), tmp_path / "qwen3.8-27b"))
    shutil.copytree(small_mlx("plain"), Paths.of_this_user().models / name)
    assert f"{name} is a model" in undrafted(model, "mtp")


@pytest.mark.usefixtures("llamacpp")
def test_a_folder_for_mlx_is_refused_for_a_file_in_words(
    undrafted: Callable[..., str], folder_pair: FolderPair, tiny: Tiny
) -> None:
    _, head = folder_pair("beside")
    assert "llama.cpp reads heads in GGUF" in undrafted(tiny("llama"), f"mtp:{head}")


def test_a_head_that_fits_another_model_is_found_with_the_reason(
    folder_pair: FolderPair, small_mlx: Callable[..., Path]
) -> None:
    model, head = folder_pair("beside")
    other = Path(shutil.copytree(small_mlx("plain"), model.parent / "other"))
    (found,) = found_for(other)
    assert found.path == head
    assert found.misfit == "it drafts for qwen3_5, not for llama"
    (head / "model.safetensors").write_bytes(b"damaged")
    assert found_for(other) == found_for(model) == []


BILLED = ("own", "beside", "eagle3", "dflash", "dspark", "assistant")


@pytest.mark.parametrize("kind", BILLED)
def test_the_bill_of_a_head_is_what_mlx_holds(folder_pair: FolderPair, kind: str) -> None:
    model, head = folder_pair(kind)
    facts = head_facts(head, model)
    said = bill(facts, 64)
    with (
        closing(mlx.load(model)) as loaded,
        closing(loaded.open(64)) as context,
        closing(load_head(head, loaded, context)) as opened,
    ):
        assert said.weights == opened.info.weight_bytes
        per_token = opened.open(64).kv_bytes_per_token + facts.row_bytes
        assert said.cache == 64 * per_token
        rows = [states.width for states in context.taps._states]
        assert facts.row_bytes == 4 * sum(rows)


def test_what_is_no_head_has_no_bill(small_mlx: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match="it brings nothing that drafts"):
        head_facts(small_mlx("plain"), small_mlx("plain"))


def test_the_catalogue_names_a_head_for_each_engine(home: Path) -> None:
    entry, folder = catalogue.find("qwen3.8-27b"), Paths.of_this_user().models
    kind = TrainedKind.NEXT_TOKEN_LAYERS
    assert head_of_catalogue(kind, entry, folder, LLAMACPP) is None  # in the model's own file
    named = head_of_catalogue(kind, entry, folder, MLX)
    repository = "mlx-community/Qwen3.8-27B-MTP-4bit"
    assert named == HubReference(repository, repository)
    assert head_of_catalogue(kind, catalogue.find("qwen3.5-9b"), folder, MLX) is None
    snapshot = hub_cache() / "models--mlx-community--Qwen3.8-27B-MTP-4bit" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).write_text("{}")
    found = head_of_catalogue(kind, entry, folder, MLX)
    assert found == Reference(repository, snapshot)


def test_a_snapshot_is_known_by_its_repository(home: Path) -> None:
    """The name of its folder is a commit."""
    snapshot = hub_cache() / "models--mlx-community--Qwen3.8-27B-4bit" / "snapshots" / "0123abcd"
    assert entry_of(Reference("0123abcd", snapshot)) is catalogue.find("qwen3.8-27b")
