"""Models of other programs are found where they lie."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from models.hub.progress import hub_cache
from models.stores.available_models import downloaded_drafter, downloaded_folder
from models.stores.scan import Origin, Places, installed_models
from tests.fixtures.denied import deny

CONTENT = b"GGUF" + bytes(60)
MANY = 200


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        tmp_path / "models",
        tmp_path / "hub",
        (tmp_path / "lmstudio", tmp_path / "old-lmstudio"),
        (tmp_path / "llama.cpp",),
        (tmp_path / "ollama",),
    )


def _write(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _write_snapshot(places: Places, repository: str, file: str, content: bytes) -> Path:
    folder = places.hub_cache / f"models--{repository.replace('/', '--')}"
    blob = _write(folder / "blobs" / hashlib.sha256(content).hexdigest(), content)
    entry = folder / "snapshots" / ("0" * 40) / file
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.symlink_to(blob)
    return entry


def _write_ollama(store: Path, name: str, content: bytes) -> Path:
    digest = hashlib.sha256(content).hexdigest()
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    _write(store / "manifests" / name, json.dumps({"layers": layers}).encode())
    return _write(store / "blobs" / f"sha256-{digest}", content)


def _names(places: Places) -> dict[str, Path]:
    return {model.name: model.path for model in installed_models(places)}


def test_nothing_anywhere(places: Places) -> None:
    assert installed_models(places) == []


def test_the_models_folder(places: Places) -> None:
    one = _write(places.models / "One-Q4_0.gguf")
    parts = [_write(places.models / f"Big-Q8_0-0000{part}-of-00002.gguf") for part in (1, 2)]
    _write(places.models / "Cut-Q8_0-00001-of-00002.gguf")
    _write(places.models / "mmproj-One.gguf")
    _write(places.models / "notes.txt")
    (places.models / "gone.gguf").symlink_to(places.models / "nowhere")
    found = installed_models(places)
    assert {model.name: model.path for model in found} == {"One-Q4_0": one, "Big-Q8_0": parts[0]}
    assert {model.size_bytes for model in found} == {len(CONTENT), 2 * len(CONTENT)}
    assert {model.origin for model in found} == {Origin.MODELS_FOLDER}


def test_the_hub_cache(places: Places) -> None:
    entry = _write_snapshot(places, "maker/Small--GGUF", "Small-Q4_K_M.gguf", CONTENT)
    below = _write_snapshot(places, "maker/Big", "Q8_0/Big-Q8_0.gguf", CONTENT + b"2")
    odd = _write_snapshot(places, "maker/Big", "plain.gguf", CONTENT + b"3")
    _write_snapshot(places, "maker/bert", "model.safetensors", b"weights")
    _write_snapshot(places, "maker/bert", "config.json", b'{"model_type": "bert"}')
    (places.hub_cache / "models--maker--broken" / "snapshots").mkdir(parents=True)
    _write(places.hub_cache / "datasets--maker--data" / "snapshots" / "0" / "file.gguf")
    assert _names(places) == {
        "maker/Small--GGUF:Q4_K_M": entry,
        "maker/Big:Q8_0": below,
        "maker/Big:plain.gguf": odd,
    }


def test_mlx_folders(places: Places) -> None:
    config = b'{"quantization": {"bits": 4}}'
    for name in ("model.safetensors", "tokenizer.json"):
        _write_snapshot(places, "maker/Small-4bit", name, name.encode())
    entry = _write_snapshot(places, "maker/Small-4bit", "config.json", config)
    (found,) = installed_models(places)
    size = len(config) + len(b"model.safetensors") + len(b"tokenizer.json")
    assert (found.name, found.path, found.size_bytes) == ("maker/Small-4bit", entry.parent, size)
    index = {"weight_map": {"a": "model.safetensors", "b": "missing.safetensors"}}
    _write_snapshot(
        places, "maker/Small-4bit", "model.safetensors.index.json", json.dumps(index).encode()
    )
    assert installed_models(places) == []
    folder = places.lm_studio[0] / "mlx-community" / "Other"
    _write(folder / "config.json", b'{"model_type": "llama"}')
    _write(folder / "model.safetensors", b"weights")
    assert _names(places) == {"mlx-community/Other": folder}


def test_ollama(places: Places) -> None:
    (store,) = places.ollama
    expected = {
        "llama3.2:3b": "registry.ollama.ai/library/llama3.2/3b",
        "someone/mine:latest": "registry.ollama.ai/someone/mine/latest",
        "hf.co/maker/Small-GGUF:Q4_K_M": "hf.co/maker/Small-GGUF/Q4_K_M",
    }
    blobs = {
        name: _write_ollama(store, manifest, CONTENT + name.encode())
        for name, manifest in expected.items()
    }
    assert _names(places) == blobs


def test_damaged_manifests_are_passed_over(places: Places) -> None:
    (store,) = places.ollama
    _write_ollama(store, "registry.ollama.ai/library/odd/no-gguf", b"nothing")
    gone = _write_ollama(store, "registry.ollama.ai/library/odd/gone", CONTENT + b"gone")
    gone.unlink()
    model = "application/vnd.ollama.image.model"
    damaged = [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"layers": 3}',
        b'{"layers": [3, {}, null]}',
        json.dumps({"layers": [{"mediaType": model, "digest": "sha256:../../../x"}]}).encode(),
        json.dumps({"layers": [{"mediaType": model, "digest": ["x"]}]}).encode(),
    ]
    for index, content in enumerate(damaged):
        _write(store / "manifests" / "registry.ollama.ai" / "library" / "odd" / str(index), content)
    whole = _write_ollama(store, "registry.ollama.ai/library/good/1b", CONTENT)
    assert _names(places) == {"good:1b": whole}


def test_names_are_unique_and_files_listed_once(places: Places) -> None:
    file = _write(places.lm_studio[0] / "maker" / "Small" / "Small-Q4_0.gguf")
    other = _write(places.lm_studio[1] / "maker" / "small" / "Small-Q4_0.gguf")
    more = _write(places.lm_studio[1] / "maker" / "small" / "Other-Q4_0.gguf")
    hub = _write_snapshot(places, "maker/Small", "Small-Q4_0.gguf", CONTENT + b"hub")
    places.models.mkdir()
    (places.models / "linked.gguf").symlink_to(file)
    names = _names(places)
    assert names == {
        "linked": places.models / "linked.gguf",
        "maker/Small:Q4_0": hub,
        "maker/small:Q4_0@lmstudio": more,
        "maker/small:Q4_0@lmstudio-2": other,
    }


def test_hundreds_are_found(places: Places) -> None:
    for index in range(MANY // 4):
        content = CONTENT + str(index).encode()
        _write(places.models / f"Model-{index}-Q4_0.gguf")
        _write_snapshot(places, f"maker/{index}", "Model-Q4_0.gguf", content)
        _write(places.lm_studio[0] / "maker" / str(index) / "Model-Q4_0.gguf", content)
        _write_ollama(places.ollama[0], f"registry.ollama.ai/library/m{index}/1b", content)
    assert len(_names(places)) == MANY


def test_the_places_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    places = Places.of_environment(tmp_path / "models")
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert places.llama_cpp == (tmp_path / caches / "llama.cpp",)
    assert places.ollama[0] == tmp_path / ".ollama" / "models"
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "one"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "two"))
    places = Places.of_environment(tmp_path / "models")
    assert (places.llama_cpp, places.ollama) == ((tmp_path / "one",), (tmp_path / "two",))


REPOSITORY, FILE = "maker/Model-GGUF", "MTP/mtp-model-Q8_0.gguf"


@pytest.mark.usefixtures("home")
def test_in_the_hub_cache_by_repository_and_in_the_models_folder_by_name(tmp_path: Path) -> None:
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) is None
    own = tmp_path / "some" / "MTP-Model-q8_0.gguf"
    own.parent.mkdir()
    own.touch()
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) == own
    snapshot = hub_cache() / "models--maker--Model-GGUF" / "snapshots" / "0123"
    (snapshot / "MTP").mkdir(parents=True)
    (snapshot / FILE).touch()
    assert downloaded_drafter(REPOSITORY, FILE, tmp_path) == snapshot / FILE
    assert downloaded_drafter("other/Model-GGUF", FILE, tmp_path) == own


@pytest.mark.usefixtures("home")
def test_a_folder_is_no_drafter_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without weights, or where nobody may read it, the next place is looked at."""
    repository = "maker/Model-MTP-4bit"
    places = [
        tmp_path / repository,
        tmp_path / "maker--Model-MTP-4bit",
        tmp_path / "Model-MTP-4bit",
    ]
    for place in places:
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
    assert downloaded_folder(repository, tmp_path) is None
    for place in places[1:]:
        (place / "model.safetensors").touch()
    assert downloaded_folder(repository, tmp_path) == places[1]
    deny(places[1], monkeypatch)
    assert downloaded_folder(repository, tmp_path) == places[2]
