"""What distilling and training of next-token layers write, and the word that lets it draft."""

import shutil
from pathlib import Path

import pytest

from app.learned.registered import drafting_file
from app.training.learners import base_of, net_of, settings_of, spec_of
from app.training.plan import Method
from app.training.run import Order
from backends.base import DraftUnavailableError, UsageError
from backends.engines.backend_selection import LLAMACPP
from backends.files.gguf_header import read_header
from models.metadata.trained_drafters import drafter_of
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import write_dense
from training.arrays import Arrays
from training.samples import SampleCache


@pytest.fixture
def arrays() -> Arrays:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from training.mlx_arrays import MlxArrays

    return MlxArrays()


def written(order: Order, target: Path, arrays: Arrays, folder: Path) -> Path:
    cache = SampleCache(folder / "samples")
    settings = settings_of(order, 1, 512)
    net = net_of(order, target, folder, cache, settings, arrays)
    assert net.weight_bytes < net.peak_bytes()
    net.write(net.first_weights(), folder / "result")
    return drafting_file(folder / "result", LLAMACPP)


def test_mlx_writes_a_distilled_model(arrays: Arrays, tmp_path: Path) -> None:
    small = write_dense(tmp_path / "small.gguf", layers=2)
    target = write_dense(tmp_path / "target.gguf")
    order = Order(method=Method.DISTIL, minutes=1, base=str(small))
    assert settings_of(order, 1, 512).rank > 0
    file = written(order, target, arrays, tmp_path)
    assert file.name == "distilled.gguf"
    assert spec_of(Method.DISTIL, file) == str(file)
    assert drafter_of(file) is None


def test_mlx_writes_the_layer_alone(tiny: Tiny, arrays: Arrays, tmp_path: Path) -> None:
    file = written(Order(method=Method.MTP, minutes=1), tiny("qwen35"), arrays, tmp_path)
    found = drafter_of(file)
    assert found is not None
    assert (found.is_alone, found.layers, found.fault) == (True, 1, "")
    assert spec_of(Method.MTP, file) == f"mtp:{file}"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_dense(tmp_path / "target.gguf", layers=10)


def test_a_model_is_distilled_into_its_first_and_last_layers(target: Path, tmp_path: Path) -> None:
    pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")
    made = base_of("", target, tmp_path, tmp_path)
    assert read_header(made).integer("block_count") == 8
    stamp = made.stat().st_mtime_ns
    assert base_of("", target, tmp_path, tmp_path).stat().st_mtime_ns == stamp


def test_a_small_model_is_distilled_as_it_is(target: Path, tmp_path: Path) -> None:
    small = write_dense(tmp_path / "small.gguf", layers=2)
    assert base_of(str(small), target, tmp_path, tmp_path) == small


def test_what_cannot_be_distilled_is_refused(target: Path, tiny: Tiny, tmp_path: Path) -> None:
    few = write_dense(tmp_path / "few.gguf", layers=4)
    with pytest.raises(UsageError, match="it has 4 layers"):
        base_of("", few, tmp_path, tmp_path)
    gemma = Path(shutil.copy(tiny("gemma4"), tmp_path))
    with pytest.raises(DraftUnavailableError, match="those that can: llama") as refused:
        base_of("", gemma, tmp_path, tmp_path)
    assert "--from" in str(refused.value.remedy)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DraftUnavailableError, match="folder for MLX"):
        base_of("", folder, tmp_path, tmp_path)


def test_another_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    from models.stores.available_models import demo_path

    if (bundled := demo_path()) is None:
        pytest.skip("the bundled model is not installed")
    with pytest.raises(DraftUnavailableError, match="its vocabulary is another one"):
        base_of(str(bundled), target, tmp_path, tmp_path)
