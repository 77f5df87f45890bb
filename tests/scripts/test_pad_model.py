"""A padded model says what the small one says, at the cost of a large one."""

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import UsageError
from scripts.pad_model import agreement, pad, parameters_of, shape_of
from scripts.padded_shape import target_shape


@pytest.mark.parametrize(
    "parameters", [150_000, 400_000, pytest.param(2_000_000, marks=pytest.mark.slow)]
)
def test_a_padded_random_model_gives_the_logits_of_the_small_one(
    tiny_llama: Callable[..., Path], tmp_path: Path, parameters: int
):
    large = tmp_path / "large.gguf"
    shape = pad(tiny_llama(), large, parameters)
    same, difference = agreement(tiny_llama(), large)
    model = llamacpp.load(large)
    # The shape counts a separate output layer once, and no norms.
    assert model.info.parameters > shape.parameters > 0.5 * parameters
    assert model.info.n_layers == shape.layers
    model.close()
    # Sums run in another order, and the cache keeps half floats: logits here spread by 1.7.
    assert difference < 0.02
    assert same > 0.99


@pytest.mark.parametrize("size", ["1.1B", "8B", "70B"])
def test_usual_sizes_are_met_within_a_twentieth_and_change_no_rounding(demo_file: Path, size: str):
    small = shape_of(gguf.GGUFReader(demo_file))
    large = target_shape(small, parameters_of(size))
    assert large.parameters == pytest.approx(parameters_of(size), rel=0.05)
    assert large.width / small.width in (4, 16)
    assert large.heads / large.kv_heads == small.heads / small.kv_heads
    assert large.head_size == small.head_size


def test_nothing_is_padded_to_less_than_itself(demo_file: Path):
    with pytest.raises(UsageError, match="smaller than the source"):
        target_shape(shape_of(gguf.GGUFReader(demo_file)), 50e6)


def test_only_llama_models_are_padded(tiny_mamba: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="mamba"):
        pad(tiny_mamba, tmp_path / "large.gguf", 1e6)


@pytest.mark.slow
def test_the_bundled_model_padded_to_a_billion_keeps_every_bit(demo_file: Path, tmp_path: Path):
    large = tmp_path / "large.gguf"
    pad(demo_file, large, parameters_of("1.1B"))
    assert agreement(demo_file, large) == (1.0, 0.0)
