"""A padded model says what the small one says, at the cost of a large one."""

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import UsageError
from backends.llamacpp.requantize import requantize
from decoding.drafters.draft_model import DraftModel
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from scripts.models.pad_model import Shape, agreement, pad, parameters_of, shape_of, target_shape
from tests.fixtures.tiny.head_pair import opened
from tests.fixtures.tiny.heads import write_eagle3
from tests.fixtures.tiny.kinds import Tiny

POSITIONS = 128


@pytest.fixture(scope="module")
def shape(demo_file: Path) -> Shape:
    """That of the bundled model."""
    return shape_of(gguf.GGUFReader(demo_file))


@pytest.mark.parametrize("parameters", [150_000, 400_000])
def test_a_padded_random_model_gives_the_logits_of_the_small_one(
    tiny_llama: Callable[..., Path], tmp_path: Path, parameters: int
):
    large = tmp_path / "large.gguf"
    padded = pad(tiny_llama(), large, parameters)
    same, difference = agreement(tiny_llama(), large, POSITIONS)
    model = llamacpp.load(large)
    # The shape counts a separate output layer once, and no norms.
    assert model.info.parameters > padded.parameters > 0.5 * parameters
    assert model.info.n_layers == padded.layers
    model.close()
    # Sums run in another order, and the cache keeps half floats: logits here spread by 1.7.
    assert difference < 0.02
    assert same > 0.99


def test_a_sparse_file_reads_as_a_full_one(tiny_llama: Callable[..., Path], tmp_path: Path):
    full, sparse = tmp_path / "full.gguf", tmp_path / "sparse.gguf"
    pad(tiny_llama(), full, 400_000)
    pad(tiny_llama(), sparse, 400_000, is_sparse=True)
    assert sparse.read_bytes() == full.read_bytes()


@pytest.mark.parametrize("size", ["1.1B", "8B", "70B"])
def test_usual_sizes_are_met_within_a_twentieth_and_change_no_rounding(shape: Shape, size: str):
    large = target_shape(shape, parameters_of(size))
    assert large.parameters == pytest.approx(parameters_of(size), rel=0.05)
    assert large.width / shape.width in (4, 16)
    assert large.heads / large.kv_heads == shape.heads / shape.kv_heads
    assert large.head_size == shape.head_size


def test_nothing_is_padded_to_less_than_itself(shape: Shape):
    with pytest.raises(UsageError, match="smaller than the source"):
        target_shape(shape, 50e6)


def test_only_llama_models_are_padded(tiny_mamba: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="mamba"):
        pad(tiny_mamba, tmp_path / "large.gguf", 1e6)


@pytest.mark.slow
def test_quantized_layers_four_times_as_wide_keep_every_bit(demo_file: Path, tmp_path: Path):
    """Two layers of the bundled model; what is padded to them is the same for each."""
    small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
    for _ in requantize(demo_file, small, None, range(1, 29)):
        pass
    padded = pad(small, large, parameters_of("280M"))
    assert (padded.width, padded.layers) == (4 * 576, 3)
    assert agreement(small, large, POSITIONS) == (1.0, 0.0)


TEXT = [3, 75, 98, 112, 130, 201, 299, 305]


def drafted(target: Path, head: Path) -> tuple[int, ...]:
    with opened(target, head) as pair:
        rows = pair.context.forward(TEXT, 1)
        history = [*TEXT, int(rows[0].argmax())]
        drafter = DraftModel("eagle3", pair.drafts, n_vocab=pair.model.info.n_vocab)
        drafter.begin(history, Sampler(SamplingSettings(temperature=0.0)))
        return drafter.propose(history, 6).tokens


def test_a_padded_head_drafts_beside_a_padded_model_what_it_drafted(
    tiny: Tiny, tmp_path: Path
) -> None:
    head = write_eagle3(tmp_path / "head.gguf", own_embeddings=False)
    large, wide = tmp_path / "large.gguf", tmp_path / "wide.gguf"
    pad(tiny("llama"), large, 400_000)
    pad(head, wide, large)
    found = drafted(large, wide)
    assert len(found) == 6
    assert found == drafted(tiny("llama"), head)
