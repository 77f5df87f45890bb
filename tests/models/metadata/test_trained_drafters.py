"""What a model's file brings for drafting, and what lies beside it, by headers alone."""

import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, misfit
from backends.files.gguf_header import read_header, read_per_token
from models.metadata.trained_drafters import drafter_alone, drafter_of, found_for
from tests.fixtures.denied import deny
from tests.fixtures.drafter_files import (
    ASSISTANT,
    ASSISTANT_KEYS,
    DFLASH,
    DFLASH_KEYS,
    EAGLE3,
    EAGLE3_KEYS,
    LAYERS,
    OWN,
    TARGET_KEYS,
    WIDTH,
    Keys,
    written,
)
from tests.fixtures.tiny.mlx_pairs import Twin

AHEAD = {**TARGET_KEYS, "nextn_predict_layers": 1}

Unsupported = Callable[[TrainedDrafter, str], str]


@pytest.fixture
def unsupported(llamacpp: ModuleType) -> Unsupported:
    del llamacpp
    from backends.llamacpp import head_checks

    return head_checks.unsupported


TENSOR = 1024
"""Bytes of each."""


def test_a_model_with_next_token_layers_brings_them(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "qwen35", AHEAD, OWN)
    found = drafter_of(path)
    assert found is not None
    assert (found.kind, found.is_alone, found.layers) == (TrainedKind.NEXT_TOKEN_LAYERS, False, 1)
    assert (found.width, found.n_vocab, found.architecture) == (WIDTH, 3, "qwen35")
    assert found.draw_bytes == 3 * TENSOR, "two tensors of the layer, and the output layer"
    assert found.read_bytes == 2 * TENSOR
    assert found.fault == ""
    header = read_header(path)
    assert read_per_token(header, header.tensors) == 3 * TENSOR, "its own layers only"


def test_a_model_without_brings_nothing(tmp_path: Path) -> None:
    assert drafter_of(written(tmp_path / "model.gguf", "llama", TARGET_KEYS, OWN[:4])) is None
    assert found_for(tmp_path / "model.gguf") == []


def test_a_key_without_weights_is_a_fault(tmp_path: Path) -> None:
    """llama.cpp refuses such a file."""
    path = written(tmp_path / "model.gguf", "qwen35", AHEAD, OWN[:4])
    (found,) = found_for(path)
    assert found.misfit == f"the file lacks the weights of next-token layer {LAYERS}"


def test_a_drafter_of_its_own_output_layer_does_not_read_the_models(tmp_path: Path) -> None:
    own_output = f"blk.{LAYERS}.nextn.shared_head_head.weight"
    unread = f"blk.{LAYERS}.nextn.embed_tokens.weight"
    found = drafter_of(written(tmp_path / "m.gguf", "glm4moe", AHEAD, [*OWN, own_output, unread]))
    assert found is not None
    assert (found.draw_bytes, found.read_bytes) == (3 * TENSOR, 2 * TENSOR)


FILES: Mapping[str, tuple[str, Keys, tuple[str, ...], TrainedKind, str]] = {
    "eagle3-a.gguf": ("eagle3", EAGLE3_KEYS, EAGLE3, TrainedKind.EAGLE3, "llama"),
    "dflash-a.gguf": ("dflash", DFLASH_KEYS, DFLASH, TrainedKind.DFLASH, "qwen3"),
    "dspark-a.gguf": (
        "dflash", DFLASH_KEYS, (*DFLASH, "markov_w1.weight"), TrainedKind.DSPARK, "lfm2"
    ),
    "mtp-g.gguf": (
        "gemma4-assistant", ASSISTANT_KEYS, ASSISTANT, TrainedKind.ASSISTANT, "gemma4"
    ),
    "mtp-q.gguf": (
        "qwen35", AHEAD, ("token_embd.weight", *OWN[4:]), TrainedKind.NEXT_TOKEN_LAYERS, "qwen35"
    ),
}  # fmt: skip


@pytest.mark.parametrize("folder", ["", "MTP"])
@pytest.mark.parametrize("name", FILES)
def test_a_drafter_beside_a_model_is_found(
    name: str, folder: str, tmp_path: Path, unsupported: Unsupported
) -> None:
    architecture, keys, names, kind, target = FILES[name]
    (tmp_path / folder).mkdir(exist_ok=True)
    file = written(tmp_path / folder / name, architecture, keys, names)
    path = written(tmp_path / "model.gguf", target, TARGET_KEYS, OWN[:4])
    written(tmp_path / "another-model.gguf", target, TARGET_KEYS, OWN[:4])
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    if target != "qwen35":
        path = written(path, target, {**TARGET_KEYS, "block_count": LAYERS}, OWN[:4])
    (found,) = found_for(path)
    assert (found.path, found.drafter.kind, found.misfit) == (file, kind, "")
    assert found.drafter.is_alone
    assert found.drafter.draw_bytes > 0
    assert unsupported(found.drafter, target) == ""
    assert found_for(file) == [], "a drafter alone is no model"


def test_dspark_drafts_one_token_less_than_its_block(tmp_path: Path) -> None:
    found = drafter_of(written(tmp_path / "d.gguf", "dflash", DFLASH_KEYS, DFLASH))
    assert found is not None
    assert (found.longest, found.target_layers) == (7, (1, 7))


@pytest.mark.parametrize(
    ("target", "keys", "tokens", "why"),
    [
        ("llama", {"embedding_length": 128}, "abc", "it reads hidden states of 64 numbers"),
        ("llama", {"block_count": 4}, "abc", "it reads layer 5 of a model that has 4"),
        ("llama", {}, "abcd", "it knows 3 tokens, the model 4"),
    ],
)
def test_a_head_for_another_model_is_told(
    target: str, keys: Keys, tokens: str, why: str, tmp_path: Path
) -> None:
    head = drafter_of(written(tmp_path / "e.gguf", "eagle3", EAGLE3_KEYS, EAGLE3))
    path = written(tmp_path / "m.gguf", target, {**TARGET_KEYS, **keys}, OWN[:4], tokens)
    assert head is not None
    assert misfit(head, read_header(path)).startswith(why)


def test_next_token_layers_and_assistants_are_of_one_architecture(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", "llama", TARGET_KEYS, OWN[:4])
    for name in ("mtp-g.gguf", "mtp-q.gguf"):
        architecture, keys, names, _, target = FILES[name]
        written(tmp_path / name, architecture, keys, names)
        (found,) = [one for one in found_for(path) if one.path.name == name]
        assert found.misfit == f"it drafts for {target}, not for llama"


@pytest.mark.parametrize(
    ("keys", "names", "why"),
    [
        ({**EAGLE3_KEYS, "target_layers": [1, 2]}, EAGLE3, "it names 2 of the model's layers"),
        (EAGLE3_KEYS, EAGLE3[1:], "the file lacks fc.weight"),
    ],
)
def test_a_damaged_head_is_told(
    keys: Keys, names: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    head = drafter_of(written(tmp_path / "e.gguf", "eagle3", keys, names))
    assert head is not None
    assert head.fault.startswith(why)


@pytest.fixture
def here(twin_of: Twin, tmp_path: Path) -> Callable[[str, str], Path]:
    """Copies the folder of a tiny kind under a name, beside the others."""
    return lambda kind, name: Path(shutil.copytree(twin_of(kind), tmp_path / "here" / name))


def test_a_folder_that_cannot_be_read_hides_no_other(
    here: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, closed, head = here("llama", "llama"), here("eagle3", "a"), here("eagle3", "b")
    assert [found.path for found in found_for(model)] == [closed, head]
    deny(closed, monkeypatch)
    with pytest.raises(PermissionError):
        next(closed.iterdir())
    assert [found.path for found in found_for(model)] == [head]
    assert drafter_alone(closed) is None


def test_a_model_that_is_named_like_a_drafter_is_none(here: Callable[[str, str], Path]) -> None:
    model = here("llama", "llama")
    names = ("Llama-DFlash", "llama-eagle3", "llama-MTP-4bit", "mtp", "dspark_llama_block7")
    for name in names:
        assert drafter_alone(here("llama", name)) is None
    assert found_for(model) == []
    head = here("eagle3", "a-model")
    assert [found.path for found in found_for(model)] == [head]


def test_what_the_engine_would_abort_on_is_told(tmp_path: Path, unsupported: Unsupported) -> None:
    own = drafter_of(written(tmp_path / "m.gguf", "qwen4exp", AHEAD, OWN))
    head = drafter_of(written(tmp_path / "e.gguf", "eagle3", EAGLE3_KEYS, EAGLE3))
    assert own is not None
    assert head is not None
    assert unsupported(own, "qwen35") == unsupported(head, "llama") == ""
    assert unsupported(own, "qwen4exp").endswith("does not run next-token layers of qwen4exp")
    assert unsupported(head, "gemma3").endswith("does not hand out what the layers read of gemma3")


def test_a_header_that_claims_millions_of_layers_is_read_at_once(tmp_path: Path) -> None:
    keys = {**TARGET_KEYS, "block_count": 4_000_000_000, "nextn_predict_layers": 3_999_999_999}
    path = written(tmp_path / "m.gguf", "qwen35", keys, OWN)
    header = read_header(path)
    assert drafter_of(path) is None
    assert read_per_token(header, header.tensors) > 0


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_or_read(name: str, tmp_path: Path) -> None:
    """Nothing but a ModelError comes of it."""
    architecture, keys, names, _, target = FILES[name]
    path = written(tmp_path / name, architecture, keys, names)
    model = written(tmp_path / "model.gguf", target, TARGET_KEYS, OWN[:4])
    whole, random = path.read_bytes(), np.random.default_rng(1)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in random.integers(8, len(whole) // 2, 3):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ModelError):
            drafter_of(path)
        found_for(model)
