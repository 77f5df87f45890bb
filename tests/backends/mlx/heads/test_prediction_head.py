"""Next-token layers of MLX models: in every form they are published in, beside their model."""

import gc
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import DraftUnavailableError, Logits, ModelError, OutOfMemoryError
from backends.mlx.heads import weights as cache_room
from backends.mlx.heads.head import load_head, text_of
from backends.mlx.heads.weights import with_converted_norms
from tests.backends.mlx.heads.whole_text import rows_after
from tests.fixtures.mlx_models import N_VOCAB
from tests.fixtures.mlx_prediction import Layout, SmallPrediction, write_prediction
from tests.fixtures.tiny.mlx_pairs import N_CTX, opened

TEXT = list(range(40, 60))
THEN = (105, 210, 220)
ROUNDING = 1e-3

EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
NEXT: dict[str, Any] = EXPERTS | {
    "model_type": "qwen3_next",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "partial_rotary_factor": 0.25,
}


def drafted(folders: tuple[Path, Path]) -> Logits:
    """Rows after a text and some guessed tokens."""
    with opened(*folders) as pair:
        pair.context.forward(TEXT, 0)
        rows = [pair.drafts.forward([*TEXT, 7], 1).copy()]
        rows += [pair.drafts.forward([token], 1).copy() for token in THEN]
    return np.vstack(rows)


def as_stored(folders: tuple[Path, Path]) -> Logits:
    """The same from the layers' weights over the whole text."""
    with opened(*folders) as pair:
        chain = cast("Any", pair.drafts)._module
        states = np.array(text_of(pair.context.model).model(mx.array([TEXT]))[0])
        return rows_after(chain, [*TEXT, 7], states, THEN, skips_first=False)


LAYOUTS = {
    "own": Layout(),
    "below the text part": Layout(prefix="language_model.mtp."),
    "raw": Layout(raw=True),
    "alone": Layout(alone=True),
    "alone, raw": Layout(alone=True, raw=True),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_same_layers_in_every_form_draft_the_same(
    small_prediction: SmallPrediction, layout: Layout
) -> None:
    rows = drafted(small_prediction(layout=layout))
    assert np.abs(rows - as_stored(small_prediction())).max() < ROUNDING


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_layers_draft_nearly_the_same(
    small_prediction: SmallPrediction, bits: int
) -> None:
    rows = drafted(small_prediction(layout=Layout(alone=True, bits=bits)))
    plain = as_stored(small_prediction())
    off = np.abs(rows - plain).max() / np.abs(plain).max()
    assert 0 < off < (0.02 if bits == 8 else 0.4)


@pytest.mark.parametrize("alone", [False, True])
def test_layers_with_experts(small_mlx: Callable[..., Path], tmp_path: Path, alone: bool) -> None:
    target = small_mlx("deltanet", model_type="qwen3_5_moe", **EXPERTS)
    folders = write_prediction(target, tmp_path, Layout(alone=alone))
    assert np.abs(drafted(folders) - as_stored(folders)).max() < ROUNDING


@pytest.mark.parametrize("joined", [False, True])
def test_experts_as_they_are_trained(
    small_mlx: Callable[..., Path], tmp_path: Path, joined: bool
) -> None:
    """One by one, or with gate and up of all in one matrix."""
    target = small_mlx("deltanet", model_type="qwen3_5_moe", **EXPERTS)
    folders = write_prediction(target, tmp_path, Layout())
    expected = as_stored(folders)
    path = str(folders[0] / "model-mtp.safetensors")
    weights = cast("dict[str, Any]", mx.load(path))
    parts = {
        name.split(".")[-2]: weights.pop(name) for name in list(weights) if "switch_mlp" in name
    }
    place = "mtp.layers.0.mlp.experts"
    if joined:
        weights[f"{place}.gate_up_proj"] = mx.concatenate(
            [parts["gate_proj"], parts["up_proj"]], axis=1
        )
        weights[f"{place}.down_proj"] = parts["down_proj"]
    else:
        for name, array in parts.items():
            weights |= {f"{place}.{number}.{name}.weight": array[number] for number in range(4)}
    mx.eval(weights)
    mx.save_safetensors(path, weights)
    assert np.abs(drafted(folders) - expected).max() < ROUNDING


def test_layers_of_qwen3_next(small_mlx: Callable[..., Path], tmp_path: Path) -> None:
    folders = write_prediction(small_mlx("deltanet", **NEXT), tmp_path, Layout(alone=True))
    assert np.abs(drafted(folders) - as_stored(folders)).max() < ROUNDING


def test_what_is_known_of_a_head(small_prediction: SmallPrediction) -> None:
    with opened(*small_prediction()) as pair:
        info = pair.head.info
        assert (info.n_layers, info.n_vocab, info.variant) == (1, N_VOCAB, "next_token_layers")
        assert info.weight_bytes > info.parameters > 0
        assert pair.drafts.kv_bytes_per_token == 2 * 2 * 16 * 4  # of two heads, float32
        assert pair.head.tokenizer is pair.model.tokenizer


def held() -> int:
    """Bytes of arrays in use, without those that are still to be freed."""
    gc.collect()
    mx.synchronize()
    return int(mx.get_active_memory())


def test_a_head_that_is_closed_costs_its_model_nothing(small_prediction: SmallPrediction) -> None:
    folders = small_prediction()
    with closing(mlx.load(folders[0])) as model, closing(model.open(N_CTX)) as context:
        before = held()
        head = load_head(folders[1], model, context)
        head.open(N_CTX).forward(TEXT, 1)
        assert held() > before
        head.close()
        del head
        assert held() <= before
        context.forward(TEXT, 1)
        assert not context.unread


def damaged(
    folders: tuple[Path, Path], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> tuple[Path, Path]:
    """A copy of a head's folder with other weights."""
    model, head = folders
    copy = tmp_path / "mtp"
    copy.mkdir()
    (copy / "config.json").write_bytes((head / "config.json").read_bytes())
    weights = dict(cast("dict[str, Any]", mx.load(str(head / "model.safetensors"))))
    change(weights)
    mx.eval(weights)
    mx.save_safetensors(str(copy / "model.safetensors"), weights)
    return model, copy


def _rename(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(weights: dict[str, Any]) -> None:
        weights[new] = weights.pop(old)

    return change


def _set(name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(weights: dict[str, Any]) -> None:
        weights[name] = make(weights[name])

    return change


INPUT_NORM = "layers.0.input_layernorm.weight"
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "other names": (_rename("fc.weight", "eh_proj.weight"), "not in model: eh_proj.weight"),
    "a part missing": (lambda weights: weights.pop("norm.weight"), "Missing .*norm.weight"),
    "one more": (
        lambda weights: weights.update({"embed_tokens.weight": mx.zeros((4, 4))}),
        "not in model: embed_tokens.weight",
    ),
    "another width": (_set("fc.weight", lambda array: array[:, :-2]), "fc.weight"),
    "half converted": (_set(INPUT_NORM, lambda array: array - 1.0), "neither as trained"),
    "in between": (_set(INPUT_NORM, lambda array: array - 0.4), "neither as trained"),
}


@pytest.mark.parametrize(("change", "why"), DAMAGE.values(), ids=DAMAGE)
def test_layers_that_are_not_known_or_damaged_are_refused_in_words(
    small_prediction: SmallPrediction,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    why: str,
) -> None:
    model, head = damaged(small_prediction(layout=Layout(alone=True)), tmp_path, change)
    with (
        closing(mlx.load(model)) as loaded,
        closing(loaded.open(64)) as context,
        pytest.raises((ModelError, DraftUnavailableError), match=f"(?s){why}"),
    ):
        load_head(head, loaded, context)


def test_models_without_known_layers_are_refused(
    small_prediction: SmallPrediction, small_mlx: Callable[..., Path]
) -> None:
    _, head = small_prediction(layout=Layout(alone=True))
    for path in (small_mlx("plain"), small_mlx("deltanet", seed=3)):
        with closing(mlx.load(path)) as model, closing(model.open(64)) as context:
            with pytest.raises((ModelError, DraftUnavailableError)) as refused:
                load_head(path, model, context)
            assert refused.value.why
            if "deltanet" in path.name:
                continue
            with pytest.raises((ModelError, DraftUnavailableError), match="drafts for qwen3_5"):
                load_head(head, model, context)


def test_too_little_memory_for_the_cache(
    small_prediction: SmallPrediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(*small_prediction()) as pair:
        monkeypatch.setattr(cache_room, "available_memory", lambda: 1)
        with pytest.raises(OutOfMemoryError, match="for the head"):
            pair.head.open(N_CTX)
        pair.context.forward(TEXT, 1)


@pytest.mark.parametrize(("means", "shift"), [((0.04, 0.39), 1.0), ((0.87, 1.21), 0.0)])
def test_published_norms_are_told_apart(means: Sequence[float], shift: float) -> None:
    """Means of the two layer norms of published heads; those of the inputs are below 0.5."""
    names = ("layers.0.input_layernorm.weight", "layers.0.post_attention_layernorm.weight")
    weights = {name: mx.full((8,), mean) for name, mean in zip(names, means, strict=True)}
    weights["pre_fc_norm_embedding.weight"] = mx.full((8,), 0.27)
    weights["fc.weight"] = mx.ones((2, 2))
    found = with_converted_norms(weights)
    for name, array in weights.items():
        expected = array + shift if array.ndim == 1 else array
        assert mx.array_equal(found[name], expected).item()
