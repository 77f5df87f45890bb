"""Projectors beside models: found, tried in a child before they are loaded, or refused."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import pytest

from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends.base import Model
from backends.base.images import NO_PROJECTOR, image_of
from models.metadata.identity import projector_beside
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.projector import picture, write_projector

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

Load = Callable[[Path], Model]


@pytest.fixture
def model(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(copyfile(tiny("llama"), tmp_path / "Tiny-Q8_0.gguf"))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    loader = CheckedLoader(Paths(tmp_path, tmp_path, tmp_path), lambda _: None)
    return lambda path: loader.load(path, 1, 0, projector=projector_beside(path))


def test_the_projector_beside_a_model_is_used(model: Path, load: Load) -> None:
    assert projector_beside(model) is None
    write_projector(model.with_name("mmproj-Tiny-f16.gguf"))
    write_projector(model.with_name("mmproj-Other-f16.gguf"), width=32)
    with closing(load(model)) as loaded:
        assert not loaded.info.image_refusal
        assert len(loaded.tokenizer.image_tokens(image_of(picture(1), "x"))) == 64


def _cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _heads(data: bytearray) -> None:
    """More heads than numbers: the engine divides by what is left, which ends the process."""
    key = b"clip.vision.attention.head_count"
    at = data.index(key) + len(key) + 4
    data[at : at + 4] = (4000).to_bytes(4, "little")


def _no_images(data: bytearray) -> None:
    data[:] = data.replace(b"clip.has_vision_encoder", b"clip.has_vision_encodes")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_cut, _heads, _no_images])
def test_a_model_is_loaded_without_a_projector_that_cannot_be_run(
    damage: Callable[[bytearray], None], model: Path, load: Load
) -> None:
    projector = write_projector(model.with_name("mmproj-Tiny-f16.gguf"))
    data = bytearray(projector.read_bytes())
    damage(data)
    projector.write_bytes(data)
    with closing(load(model)) as loaded:
        assert loaded.info.image_refusal not in ("", NO_PROJECTOR)
        assert loaded.tokenizer.encode("text", special=False)


@pytest.mark.nightly
def test_no_damage_to_a_projector_reaches_this_process(model: Path, load: Load) -> None:
    projector = write_projector(model.with_name("mmproj-Tiny-f16.gguf"))
    whole, chance = projector.read_bytes(), random.Random(1)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(3):
            data[chance.randrange(5_000)] = chance.randrange(256)
        projector.write_bytes(data)
        with closing(load(model)) as loaded:
            if not loaded.info.image_refusal:
                assert loaded.tokenizer.image_tokens(image_of(picture(1), "x"))
