"""What distilling and training of next-token layers write, and the word that lets it draft."""

from pathlib import Path

import pytest

from app.paths import Paths
from app.training.learners import drafting_file, learner_of, settings_of, spec_of
from app.training.plan import Method
from app.training.run import Order
from backends.engines.backend_selection import LLAMACPP
from models.metadata.trained_drafters import drafter_of
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.models import write_dense
from training.arrays import Arrays
from training.samples import CacheFacts, SampleCache
from training.settings import TrainSettings


@pytest.fixture
def arrays() -> Arrays:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from training.mlx_arrays import MlxArrays

    return MlxArrays()


def written(order: Order, target: Path, arrays: Arrays, folder: Path) -> Path:
    cache = SampleCache.open(folder / "samples", CacheFacts("", "", "", (), 64, 354))
    usual = settings_of(order, TrainSettings(method=order.method, steps=1))
    paths = Paths(folder, folder, folder)
    learner = learner_of(order, target, paths, folder, cache, usual, arrays)
    assert learner.weight_bytes < learner.peak_bytes
    learner.write(learner.net.first_weights(), folder / "result")
    return drafting_file(folder / "result", LLAMACPP)


def test_mlx_writes_a_distilled_model(arrays: Arrays, tmp_path: Path) -> None:
    small = write_dense(tmp_path / "small.gguf", layers=2)
    target = write_dense(tmp_path / "target.gguf")
    order = Order(method=Method.DISTIL, minutes=1, base=str(small))
    assert settings_of(order, TrainSettings(method="distil", steps=1)).rank > 0
    file = written(order, target, arrays, tmp_path)
    assert file.name == "target-distilled.gguf"
    assert spec_of(Method.DISTIL, file) == str(file)
    assert drafter_of(file) is None


def test_mlx_writes_the_layer_alone(tiny: Tiny, arrays: Arrays, tmp_path: Path) -> None:
    file = written(Order(method=Method.MTP, minutes=1), tiny("qwen35"), arrays, tmp_path)
    found = drafter_of(file)
    assert found is not None
    assert (found.is_alone, found.layers, found.fault) == (True, 1, "")
    assert spec_of(Method.MTP, file) == f"mtp:{file}"
