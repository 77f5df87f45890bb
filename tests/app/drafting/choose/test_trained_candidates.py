"""What was trained for a model is listed: at hand, to download, or of no use here."""

import shutil
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from app.drafting.choose.candidates import trained
from app.drafting.choose.drafter_info import DrafterInfo, Target
from app.paths import Paths
from backends.base import Model
from backends.engines.backend_selection import Form
from models.hub.progress import hub_cache
from models.metadata.memory_bill import facts_of
from models.reference import Reference, on_hub
from tests.fixtures.tiny.kinds import Pair


def by_name(target: Target) -> dict[str, DrafterInfo]:
    return {each.name: each for each in trained(target, Paths.of_this_user())}


def of_catalogue(name: str) -> Target:
    return Target(on_hub(name, Paths.of_this_user().models), None)


def test_before_a_model_is_here_the_catalogue_tells() -> None:
    found = by_name(of_catalogue("qwen3.8-27b"))
    mtp, dflash, dspark = (found[word] for word in ("mtp", "dflash", "dspark"))
    assert (mtp.is_compatible, dflash.is_compatible, dspark.is_compatible) == (True, True, False)
    assert mtp.why.startswith("next-token layers: in the model's own file; published: code 1.8")
    assert "z-lab/Qwen3.8-27B-DFlash2-GGUF" in dflash.why
    assert "downloaded at its first use; published: code 3.1" in dflash.why
    assert "RedHatAI/Qwen3.8-27B-speculator.dspark is for MLX" in dspark.why
    assert {one.path for one in found.values()} == {None}
    (mtp,) = by_name(of_catalogue("qwen3.5-9b")).values()
    assert mtp.is_compatible is False
    assert "only the model's files in unsloth/Qwen3.5-9B-MTP-GGUF have them" in mtp.why


def _target(path: Path, model: Model) -> Target:
    return Target(Reference(path.name, path), facts_of(path), model)


def test_two_heads_of_a_kind_have_names_of_their_own(llamacpp: ModuleType, pair: Pair) -> None:
    path, head = pair("eagle3")
    shutil.copyfile(head, head.with_name("second.gguf"))
    pair("qwen35-sidecar")[1].rename(head.with_name("wrong.gguf"))
    with closing(llamacpp.load(path, threads=1)) as model:
        found = by_name(_target(path, model))
    second = str(head.with_name("second.gguf"))
    assert list(found) == ["eagle3", f"eagle3:{second}", "wrong.gguf"]
    assert found["eagle3"].path == head
    assert found["eagle3"].is_compatible
    assert not found["wrong.gguf"].is_compatible
    why = "next-token layers beside the model: it drafts for qwen35, not for llama"
    assert found["wrong.gguf"].why == why


def test_a_head_that_was_downloaded_apart_is_at_hand(
    llamacpp: ModuleType, pair: Pair, tmp_path: Path
) -> None:
    """By the names of the catalogue: here those of gpt-oss, on small files."""
    path, head = pair("eagle3")
    snapshot = hub_cache() / "models--ggml-org--gpt-oss-20b-GGUF" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    head.rename(snapshot / "eagle3-gpt-oss-20b-Q8_0.gguf")
    named = path.rename(tmp_path / "openai_gpt-oss-20b-MXFP4.gguf")
    with closing(llamacpp.load(named, threads=1)) as model:
        (found,) = by_name(_target(named, model)).values()
    assert (found.name, found.path) == ("eagle3", snapshot / "eagle3-gpt-oss-20b-Q8_0.gguf")
    assert found.is_compatible


@pytest.mark.parametrize(
    ("content", "why"), [(b"no model", "is not a GGUF file"), (None, "brings nothing that drafts")]
)
def test_a_download_of_no_use_says_why(
    llamacpp: ModuleType, pair: Pair, tmp_path: Path, content: bytes | None, why: str
) -> None:
    """Damaged, or with a model in the place of its head."""
    path, head = pair("eagle3")
    head.unlink()
    snapshot = hub_cache() / "models--ggml-org--gpt-oss-20b-GGUF" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    wrong = path.read_bytes() if content is None else content
    (snapshot / "eagle3-gpt-oss-20b-Q8_0.gguf").write_bytes(wrong)
    named = path.rename(tmp_path / "openai_gpt-oss-20b-MXFP4.gguf")
    with closing(llamacpp.load(named, threads=1)) as model:
        (found,) = by_name(_target(named, model)).values()
    assert not found.is_compatible
    assert why in found.why


def test_each_engine_has_files_of_its_own() -> None:
    """The same head is published for both, or for one of them."""
    paths = Paths.of_this_user()
    target = Target(on_hub("gpt-oss-20b", paths.models), None, backend="mlx")
    (found,) = by_name(target).values()
    assert found.is_compatible is False
    assert "is for llama.cpp, which runs the model's GGUF file" in found.why
    folder = Target(on_hub("qwen3.8-27b", paths.models, (Form.MLX,)), None)
    mtp, dflash, dspark = (by_name(folder)[word] for word in ("mtp", "dflash", "dspark"))
    assert (mtp.is_compatible, dflash.is_compatible, dspark.is_compatible) == (True, True, True)
    assert "mlx-community/Qwen3.8-27B-MTP-4bit, downloaded at its first use" in mtp.why
    assert "incoai/Qwen3.8-27B-DFlash2" in dflash.why
