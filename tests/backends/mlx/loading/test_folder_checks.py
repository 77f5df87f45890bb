"""Folders that cannot be loaded: the reason in words, and nothing is left half-loaded."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from backends import mlx as backend
from backends.base import ModelError, OutOfMemoryError
from backends.mlx import folder_checks
from backends.mlx.folder_checks import load_error
from tests.backends.mlx.conftest import INDEX, SHARDS


def change(folder: Path, **changes: Any) -> Path:
    """Change settings of config.json; None takes one out."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    kept = {name: value for name, value in config.items() if value is not None}
    file.write_text(json.dumps(kept))
    return folder


def refused(folder: Path, *words: str) -> ModelError:
    """Loading fails with these words in little text, and leaves no memory taken."""
    gc.collect()  # what earlier tests left
    before = mx.get_active_memory()
    with pytest.raises(ModelError) as caught:
        backend.load(folder)
    assert mx.get_active_memory() == before
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert len(text.replace(str(folder), "")) < 500
    assert "Traceback" not in text
    return caught.value


def test_a_whole_folder_in_two_files_is_loaded(sharded: Path) -> None:
    backend.load(sharded).close()


def test_there_is_no_folder(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no folder")


def test_settings_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "there are no weights", "Download or convert it again")


def test_weights_without_settings(sharded: Path) -> None:
    (sharded / "config.json").unlink()
    refused(sharded, "config.json is missing")


def test_a_folder_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(folder_checks, "require_whole", denied)
    refused(folder, "Permission denied")


def test_an_interrupted_download_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.safetensors.specchat.incomplete")
    refused(folder, "the download of model.safetensors.specchat.incomplete was interrupted")


def test_the_hub_keeps_unfinished_files_in_a_folder_of_its_own(sharded: Path) -> None:
    place = sharded / ".cache" / "huggingface" / "download"
    place.mkdir(parents=True)
    (sharded / SHARDS[1]).rename(place / "abc.incomplete")
    refused(sharded, f"{SHARDS[1]} is missing", "abc.incomplete was interrupted")


def test_weights_named_for_another_program(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    refused(folder, "consolidated.safetensors is present", "only model*.safetensors")


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard(sharded: Path, index: bool) -> None:
    if not index:
        (sharded / INDEX).unlink()
    (sharded / SHARDS[1]).unlink()
    refused(sharded, f"{SHARDS[1]} is missing")


def test_a_shard_that_leads_nowhere(sharded: Path) -> None:
    (sharded / SHARDS[0]).unlink()
    (sharded / SHARDS[0]).symlink_to(sharded / "gone")
    refused(sharded, f"{SHARDS[0]} is missing")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_file_that_was_cut_short(sharded: Path, share: float) -> None:
    file = sharded / SHARDS[1]
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    refused(sharded, SHARDS[1], "interrupted" if share == 0.0 else "cut short")


def test_a_shard_of_another_conversion(sharded: Path) -> None:
    shutil.copy(sharded / SHARDS[0], sharded / SHARDS[1])
    refused(sharded, "does not belong to the rest", "is missing")


@pytest.mark.parametrize("name", ["../model-1.safetensors", "/etc/passwd", "sub/model.safetensors"])
def test_an_index_may_not_lead_out_of_its_folder(sharded: Path, name: str) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    refused(sharded, f"{INDEX} is damaged")


def test_an_index_of_names_that_are_not_loaded(sharded: Path) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"a": "weights.00.safetensors"}}))
    refused(sharded, "'weights.00.safetensors'", "only model*.safetensors")


def test_a_shape_that_is_not_its_length(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    assert b"[300,64]" in data
    file.write_bytes(data.replace(b"[300,64]", b"[999,64]"))
    refused(folder, "is not its shape")


def test_a_shape_that_the_settings_do_not_have(folder: Path) -> None:
    refused(change(folder, intermediate_size=96), "inconsistent", "shape", "model.layers.")


def test_tensors_that_are_missing(folder: Path) -> None:
    refused(change(folder, num_hidden_layers=4), "inconsistent", "Missing", "model.layers.2.")


def test_tensors_that_are_too_many(folder: Path) -> None:
    refused(change(folder, num_hidden_layers=1), "inconsistent", "not in model", "model.layers.1.")


def test_settings_that_are_missing(folder: Path) -> None:
    refused(change(folder, rms_norm_eps=None), "inconsistent", "'rms_norm_eps'")


@pytest.mark.parametrize(
    "kind", ["gpt17", "os.path", "../llama", "cache", "llama.Model", "switch_layers", "x" * 10_000]
)
def test_an_unknown_architecture(folder: Path, kind: str) -> None:
    refused(change(folder, model_type=kind), "does not support the architecture", kind[:8])


@pytest.mark.parametrize("kind", [None, 3, "", ["llama"], {}])
def test_no_architecture(folder: Path, kind: object) -> None:
    refused(change(folder, model_type=kind), "names no architecture")


def test_code_of_a_model_is_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    refused(change(folder, model_file="own.py"), "program code")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "quantization",
    [{"bits": 7, "group_size": 64}, {"bits": 4, "group_size": 48}, {"bits": 4}, {"bits": "4"}, []],
)
def test_an_odd_quantization(folder: Path, quantization: object) -> None:
    refused(change(folder, quantization=quantization))


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_attention_heads", "num_local_experts"])
def test_absurd_numbers_of_parts_are_refused_before_they_are_made(folder: Path, name: str) -> None:
    refused(change(folder, **{name: 1_000_000}), f"{name} is 1,000,000")


def test_more_layers_than_weights_are_refused_before_they_are_made(folder: Path) -> None:
    refused(change(folder, num_hidden_layers=4096), "has 4,096 layers, and the weights 21 tensors")


def test_weights_larger_than_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_checks, "available_memory", lambda: 100_000)
    error = refused(folder, "of memory for its weights", "are free", "Choose a smaller model")
    assert isinstance(error, OutOfMemoryError)


def test_no_memory_while_loading() -> None:
    path = Path("model")
    for error in (MemoryError(), RuntimeError("[metal::malloc] Attempting to allocate 9 bytes")):
        assert isinstance(load_error(path, error), OutOfMemoryError)
    assert not isinstance(load_error(path, RuntimeError("shapes")), OutOfMemoryError)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "there is no memory for model"),
        (AssertionError(), "cannot load model: its files are inconsistent (AssertionError)"),
        (OSError(), "cannot load model: its files are inconsistent (OSError)"),
    ],
)
def test_an_error_without_words_leaves_no_gap_in_ours(error: Exception, told: str) -> None:
    assert load_error(Path("model"), error).summary == told


def test_a_load_that_failed_late_leaves_nothing_and_the_next_works(folder: Path) -> None:
    """The weights fit, and only then the tokenizer turns out to be of another model."""
    file = folder / "tokenizer.json"
    good = file.read_text()
    tokenizer = json.loads(good)
    tokenizer["model"]["vocab"]["another"] = 5_000
    file.write_text(json.dumps(tokenizer))
    refused(folder, "belongs to another model", "5,001 tokens, and the weights 300")
    file.write_text(good)
    model = backend.load(folder)
    context = model.open(32)
    assert context.forward([1, 2, 3], 1).shape == (1, 300)
    model.close()


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    refused(folder, "there is no tokenizer")


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"model": {"type": "BPE"}}', "\0\1\2"])
def test_a_damaged_tokenizer(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    refused(folder, "tokenizer.json is damaged")


def test_a_folder_whose_path_looks_like_a_pattern_is_loaded(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "models [old]" / "one*"
    moved.parent.mkdir()
    shutil.move(folder, moved)
    model = backend.load(moved)
    assert model.info.path == moved
    model.close()
