"""Self-drafters of MLX: what they compute, what they share with their target, what is refused."""

import gc
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import DraftUnavailableError, Logits, Model
from backends.mlx.model import MlxModel, weights_of
from backends.mlx.self_draft import derive

SmallMlx = Callable[..., Path]
TOKENS = list(range(20, 60))
"""More than the window of the kind with one."""

GEMMA3 = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 32,
    "sliding_window_pattern": 3,
}
GEMMA4 = {
    "model_type": "gemma4_text",
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 0,
    "head_dim": 16,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 0,
    "sliding_window_pattern": 1,
}


def test_progress_tells_every_matrix(loaded: Callable[..., MlxModel]):
    told: list[tuple[int, int]] = []
    derive(loaded(), "copy", 4, (), progress=lambda done, total: told.append((done, total)))
    assert told == [(done, len(told)) for done in range(1, len(told) + 1)]
    assert len(told) > 2 * 7


@pytest.fixture
def loaded(small_mlx: SmallMlx) -> Iterator[Callable[..., MlxModel]]:
    """A small model by kind and settings, closed after the test."""
    models: list[MlxModel] = []

    def load(kind: str = "plain", **changes: Any) -> MlxModel:
        models.append(mlx.load(small_mlx(kind, **changes)))
        return models[-1]

    yield load
    for model in models:
        model.close()


def logits(model: Model) -> Logits:
    """Of the last tokens of a text, after going back once."""
    context = model.open(128)
    context.forward(TOKENS, 0)
    context.truncate(len(TOKENS) - 3)
    rows = context.forward(TOKENS[-3:], 3).copy()
    context.close()
    return rows


def shorter(folder: Path, place: Path, skipped: int, **changes: Any) -> Path:
    """The same model as a folder without a layer, the rest numbered anew."""
    shutil.copytree(folder, place)
    config = json.loads((place / "config.json").read_text()) | changes
    config["num_hidden_layers"] -= 1
    (place / "config.json").write_text(json.dumps(config))
    weights = mx.load(str(place / "model.safetensors"))
    kept: dict[str, Any] = {}
    for name, array in weights.items():
        number = int(found[1]) if (found := re.search(r"layers\.(\d+)\.", name)) else -1
        if number != skipped:
            new = number - (number > skipped)
            kept[name.replace(f"layers.{number}.", f"layers.{new}.")] = array
    mx.save_safetensors(str(place / "model.safetensors"), kept)
    return place


@pytest.mark.parametrize(
    ("kind", "skipped", "changes"),
    [
        ("plain", 0, {}),
        ("plain", 1, {}),
        ("sliding", 0, {"layer_types": ["sliding_attention", "full_attention"]}),
        ("sliding", 1, {"layer_types": ["sliding_attention", "full_attention"]}),
        ("experts", 1, {}),
    ],
)
def test_a_view_computes_what_a_model_without_the_layer_does(
    kind: str, skipped: int, changes: dict[str, Any], small_mlx: SmallMlx, tmp_path: Path
):
    target = mlx.load(small_mlx(kind))
    reference = mlx.load(shorter(small_mlx(kind), tmp_path / "shorter", skipped, **changes))
    view = derive(target, "skip", None, (skipped,))
    np.testing.assert_array_equal(logits(view), logits(reference))
    assert view.info.n_layers == reference.info.n_layers
    assert view.info.bytes_read_per_token == reference.info.bytes_read_per_token
    target.close()


@pytest.mark.parametrize(("skipped", "left"), [(0, [0, 1]), (1, [1, 1]), (2, [1, 0])])
def test_layers_without_positions_stay_without_them(
    skipped: int, left: list[int], small_mlx: SmallMlx, tmp_path: Path
):
    folder = small_mlx("plain", model_type="smollm3", num_hidden_layers=3, no_rope_layers=[1, 0, 1])
    target = mlx.load(folder)
    other = mlx.load(shorter(folder, tmp_path / "shorter", skipped, no_rope_layers=left))
    view = derive(target, "skip", None, (skipped,))
    np.testing.assert_array_equal(logits(view), logits(other))
    target.close()


@pytest.mark.parametrize(("kind", "changes"), [("plain", {}), ("sliding", {}), ("plain", GEMMA3)])
def test_every_layer_but_one_can_be_skipped(
    kind: str, changes: dict[str, Any], loaded: Callable[..., MlxModel]
):
    target = loaded(kind, **changes)
    for kept in range(target.info.n_layers):
        skipped = [number for number in range(target.info.n_layers) if number != kept]
        view = derive(target, "skip", None, skipped)
        assert np.isfinite(logits(view)).all()
        assert not np.array_equal(logits(view), logits(target))


def test_a_view_copies_no_weights(loaded: Callable[..., MlxModel]):
    target = loaded("plain", num_hidden_layers=6)
    assert target.module is not None
    arrays = {id(array) for _, array in weights_of(target.module)}
    before = mx.get_active_memory()
    view = derive(target, "skip", None, (2, 3))
    assert mx.get_active_memory() - before < 4096
    assert view.module is not None
    assert {id(array) for _, array in weights_of(view.module)} < arrays
    assert view.info.weight_bytes == 0
    assert view.info.bytes_read_per_token < target.info.bytes_read_per_token


def held_memory() -> int:
    """Bytes of arrays, without those that nobody holds."""
    gc.collect()
    return mx.get_active_memory()


@pytest.mark.parametrize(
    "bits", [3, 4, *(pytest.param(bits, marks=pytest.mark.nightly) for bits in (2, 5, 6, 8))]
)
def test_a_copy_has_the_weights_in_fewer_bits(bits: int, loaded: Callable[..., MlxModel]):
    target = loaded("experts")
    growths: list[int] = []
    for _ in range(3):  # what MLX keeps of the first time, or of an earlier test, is no weight
        derive(target, "copy", bits, ()).close()
        before = held_memory()
        made = derive(target, "copy", bits, ())
        growths.append(held_memory() - before)
        made.close()
    made, growth = derive(target, "copy", bits, ()), min(growths)
    assert made.info.weight_bytes <= growth <= 1.1 * made.info.weight_bytes
    # Scales and offsets of float32 for 64 weights each add a bit.
    assert made.info.weight_bytes < target.info.weight_bytes * (bits + 1.2) / 32
    assert made.info.quantization == f"{bits}-bit"
    assert target.module is not None
    assert made.module is not None
    ours, theirs = dict(weights_of(target.module)), dict(weights_of(made.module))
    name = "model.layers.1.mlp.switch_mlp.down_proj.weight"
    assert mx.array_equal(theirs[name], mx.quantize(ours[name], 64, bits)[0])
    assert theirs["model.norm.weight"] is ours["model.norm.weight"]


def test_the_more_bits_the_closer(loaded: Callable[..., MlxModel]):
    target = loaded("plain")
    exact = logits(target)
    errors = [np.abs(logits(derive(target, "", bits, ())) - exact).mean() for bits in (8, 4, 2)]
    assert errors == sorted(errors)
    assert errors[0] < 0.1 * errors[2]


def test_quantized_weights_are_requantized(loaded: Callable[..., MlxModel]):
    eight = derive(loaded("experts"), "", 8, ())
    four = derive(eight, "", 4, ())
    assert eight.module is not None
    assert four.module is not None
    held, made = dict(weights_of(eight.module)), dict(weights_of(four.module))
    for name in ("model.embed_tokens", "model.layers.0.mlp.switch_mlp.up_proj", "lm_head"):
        parts = [held[f"{name}.{part}"] for part in ("weight", "scales", "biases")]
        expected = mx.quantize(mx.dequantize(*parts, group_size=64, bits=8), 64, 4)
        assert mx.array_equal(made[f"{name}.weight"], expected[0])
    assert np.isfinite(logits(four)).all()
    with pytest.raises(DraftUnavailableError, match="no copy in 4 bits"):
        derive(four, "", 4, ())


def test_weights_of_odd_width_are_shared(loaded: Callable[..., MlxModel]):
    target = loaded("plain", hidden_size=80)
    made = derive(target, "", 4, ())
    assert target.module is not None
    assert made.module is not None
    ours, theirs = dict(weights_of(target.module)), dict(weights_of(made.module))
    odd, even = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"
    assert theirs[odd] is ours[odd]
    assert theirs[even].dtype == mx.uint32


def test_fewer_bits_and_fewer_layers_go_together(loaded: Callable[..., MlxModel]):
    target = loaded("sliding")
    both, copy = derive(target, "", 4, (1,)), derive(target, "", 4, ())
    assert both.info.weight_bytes < copy.info.weight_bytes
    view = derive(copy, "", None, (1,))
    np.testing.assert_array_equal(logits(both), logits(view))


@pytest.mark.parametrize("bits", [None, 4])
def test_either_may_be_closed_first(bits: int | None, small_mlx: SmallMlx):
    target = mlx.load(small_mlx("plain"))
    expected = logits(target)
    made = derive(target, "", bits, (1,))
    drafted = logits(made)
    made.close()
    np.testing.assert_array_equal(logits(target), expected)
    again = derive(target, "", bits, (1,))
    again.open(64)
    target.close()
    np.testing.assert_array_equal(logits(again), drafted)
    again.close()


def test_layers_that_hand_on_more_than_one_thing_cannot_be_skipped(loaded: Callable[..., MlxModel]):
    target = loaded("plain", **GEMMA4)
    with pytest.raises(DraftUnavailableError, match="cannot draft for itself"):
        derive(target, "", None, (0,))
    assert np.isfinite(logits(target)).all()


def test_fewer_experts_are_those_of_a_folder_that_says_so(
    small_mlx: SmallMlx, loaded: Callable[..., MlxModel]
):
    target, reference = loaded("experts"), loaded("experts", num_experts_per_tok=1)
    assert target.info.active_experts == 2
    whole = logits(target)
    view = derive(target, "experts1", None, (), 1)
    np.testing.assert_array_equal(logits(view), logits(reference))
    np.testing.assert_array_equal(logits(target), whole)  # its own routers are as they were
    assert not np.array_equal(logits(view), whole)
    assert view.info.weight_bytes == 0
    assert view.info.active_experts == 1
    assert view.info.bytes_read_per_token == reference.info.bytes_read_per_token


def test_fewer_experts_layers_and_bits_go_together(loaded: Callable[..., MlxModel]):
    target = loaded("experts")
    made = derive(target, "all", 8, (0,), 1)
    assert np.isfinite(logits(made)).all()
    assert made.info.bytes_read_per_token < derive(target, "q", 8, (0,)).info.bytes_read_per_token


def test_experts_that_no_router_counts_are_refused(loaded: Callable[..., MlxModel]):
    with pytest.raises(DraftUnavailableError, match="number of experts cannot be reduced"):
        derive(loaded("plain"), "experts1", None, (), 1)
