"""Which folders are assistants of which models, and the clusters of the smallest ones."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import ModelError
from backends.mlx.heads.head import load_head
from tests.fixtures.tiny.heads import OWN_WIDTH
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.mlx_pairs import Assisted, Folders, opened
from tests.fixtures.tiny.twins import write_assistant_folder

PROMPT, LAST = [1, 75, 300, 299, 310, 75], 305
CLUSTERS, N_VOCAB = 6, 354
ROUNDED = 0.05
"""Share of the largest logit by which 8 bits of random weights move the others; measured: 0.02."""


@pytest.fixture
def rewritten(assisted: Assisted, tiny: Tiny, tmp_path: Path) -> Callable[..., Folders]:
    """The pair, with other settings or tensors of the assistant: rewritten(tensors, **config)."""

    def make(tensors: dict[str, Any] | None = None, clusters: int = 0, **config: Any) -> Folders:
        folder = write_assistant_folder(
            tmp_path / "assistant", tiny("gemma4-assistant"), clusters, **config
        )
        if tensors:
            file = folder / "model.safetensors"
            weights = mx.load(str(file)) | tensors
            kept = {name: array for name, array in weights.items() if array is not None}
            mx.eval(kept)  # saving replaces the file that they are read from
            mx.save_safetensors(str(file), kept)
        return Folders(assisted().model, folder)

    return make


def change_settings(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_bytes())
    change(config)
    file.write_text(json.dumps(config), encoding="utf-8")


def refusal(folders: Folders) -> str:
    with closing(mlx.load(folders.model)) as model, closing(model.open(64)) as context:
        with pytest.raises(ModelError) as caught:
            load_head(folders.assistant, model, context)
        return str(caught.value)


def test_the_assistant_of_another_model_is_refused(
    rewritten: Callable[..., Folders], small_mlx: Callable[..., Path]
) -> None:
    folders = rewritten()
    assert "gemma4" in refusal(Folders(small_mlx("plain"), folders.assistant))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_dim": 64}, "heads of 64 numbers"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "_proj"),
        ({"layer_types": ["sliding_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention", "linear_attention"]}, "linear_attention"),
        ({"layer_types": "sliding_attention"}, "layer_types"),
        ({"hidden_size_per_layer_input": 16}, "hidden_size_per_layer_input"),
        ({"enable_moe_block": True}, "enable_moe_block"),
        ({"layer_types": None, "num_hidden_layers": 1 << 31}, "num_hidden_layers"),
        ({"layer_types": None, "sliding_window_pattern": 1 << 31}, "sliding_window_pattern"),
        ({"sliding_window": 1}, "window"),
        ({"sliding_window": "wide"}, "sliding_window"),
        ({"hidden_size": -5}, "hidden_size"),
        ({"intermediate_size": 97}, "mlp"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_no_assistant_has_are_refused(
    rewritten: Callable[..., Folders], changes: dict[str, Any], reason: str
) -> None:
    folders = rewritten()
    change_settings(folders.assistant, lambda config: config["text_config"].update(changes))
    assert reason in refusal(folders)


def test_usual_settings_may_be_left_out(rewritten: Callable[..., Folders]) -> None:
    folders = rewritten()

    def leave_out(config: dict[str, Any]) -> None:
        del config["use_ordered_embeddings"], config["tie_word_embeddings"]
        del config["text_config"]["num_kv_shared_layers"], config["text_config"]["model_type"]
        config["text_config"]["rope_parameters"] = None

    change_settings(folders.assistant, leave_out)
    with opened(*folders) as pair:
        assert np.isfinite(pair.drafts.forward(PROMPT, 1)).all()


def test_models_with_images_of_any_kind_have_assistants(
    rewritten: Callable[..., Folders], tmp_path: Path
) -> None:
    folders = rewritten()
    unified = Path(shutil.copytree(folders.model, tmp_path / "unified"))
    change_settings(unified, lambda config: config.update(model_type="gemma4_unified"))
    with opened(unified, folders.assistant) as pair:
        assert np.isfinite(pair.drafts.forward(PROMPT, 1)).all()


def test_a_missing_or_foreign_tensor_is_named(rewritten: Callable[..., Folders]) -> None:
    name = "model.layers.1.self_attn.q_norm.weight"
    folders = rewritten({name: None, "model.layers.1.self_attn.k_norm.weight": mx.ones((32,))})
    assert "_norm.weight" in refusal(folders)


def test_half_precision_and_fewer_bits(
    rewritten: Callable[..., Folders], assisted: Assisted
) -> None:
    """Weights in the type of the model's keys; quantized layers are recognized by their scales."""
    with opened(*assisted()) as pair:
        pair.context.forward(PROMPT, 1)
        exact = pair.drafts.forward([*PROMPT, LAST], 1).copy()
    folders = rewritten()
    file = folders.assistant / "model.safetensors"
    weights = mx.load(str(file))
    quantized: dict[str, Any] = {}
    for name, array in weights.items():
        if array.ndim == 2:
            parts = mx.quantize(array, group_size=32, bits=8)
            base = name.removesuffix("weight")
            quantized |= {
                f"{base}{part}": values
                for part, values in zip(("weight", "scales", "biases"), parts, strict=True)
            }
        else:
            quantized[name] = array.astype(mx.bfloat16)
    mx.eval(quantized)  # saving replaces the file that they are read from
    mx.save_safetensors(str(file), quantized)
    with opened(*folders) as pair:
        assert pair.head.info.weight_bytes < sum(array.nbytes for array in weights.values()) / 2
        pair.context.forward(PROMPT, 1)
        found = pair.drafts.forward([*PROMPT, LAST], 1)
        assert 0 < np.abs(found - exact).max() < ROUNDED * np.abs(exact).max()


def test_a_model_in_half_precision(assisted: Assisted, tmp_path: Path) -> None:
    """The assistant computes in the type of the keys it reads, and gives scores in float32."""
    folders = assisted()
    with opened(*folders) as pair:
        pair.context.forward(PROMPT, 1)
        exact = pair.drafts.forward([*PROMPT, LAST], 1).copy()
    half = Path(shutil.copytree(folders.model, tmp_path / "half"))
    weights = mx.load(str(half / "model.safetensors"))
    halved = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.eval(halved)  # saving replaces the file that they are read from
    mx.save_safetensors(str(half / "model.safetensors"), halved)
    with opened(half, folders.assistant) as pair:
        pair.context.forward(PROMPT, 1)
        found = pair.drafts.forward([*PROMPT, LAST], 1)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - exact).max() < ROUNDED * np.abs(exact).max()
        stored = sum(
            array.nbytes for array in mx.load(str(folders.assistant / "model.safetensors")).values()
        )
        assert pair.head.info.weight_bytes == stored // 2


def test_an_output_layer_of_its_own(rewritten: Callable[..., Folders]) -> None:
    table = mx.random.normal((N_VOCAB, OWN_WIDTH), key=mx.random.key(1))
    folders = rewritten({"lm_head.weight": table}, tie_word_embeddings=False)
    with opened(*folders) as pair:
        pair.context.forward(PROMPT, 1)
        own = pair.drafts.forward([*PROMPT, LAST], 1).copy()
    change_settings(folders.assistant, lambda config: config.update(tie_word_embeddings=True))
    with opened(*folders) as pair:
        pair.context.forward(PROMPT, 1)
        assert np.abs(pair.drafts.forward([*PROMPT, LAST], 1) - own).max() > 1


def test_only_tokens_of_the_likeliest_clusters_are_known(assisted: Assisted) -> None:
    with opened(*assisted()) as pair:
        pair.context.forward(PROMPT, 1)
        whole = pair.drafts.forward([*PROMPT, LAST], 1)[0].copy()
    clustered = assisted(clusters=CLUSTERS)
    weights = mx.load(str(clustered.assistant / "model.safetensors"))
    of_cluster = np.array(weights["masked_embedding.token_ordering"]).reshape(CLUSTERS, -1)
    with opened(*clustered) as pair:
        pair.context.forward(PROMPT, 1)
        row = pair.drafts.forward([*PROMPT, LAST], 1)[0]
        known = np.isfinite(row)
        assert known.sum() == N_VOCAB // 2
        assert np.abs(row[known] - whole[known]).max() < 1e-5
        assert np.isneginf(row[~known]).all()
        assert all(known[tokens].all() or not known[tokens].any() for tokens in of_cluster)


@pytest.mark.parametrize(
    ("tokens", "config", "reason"),
    [
        (np.zeros(N_VOCAB, np.int64), {}, "token_ordering"),
        (np.arange(N_VOCAB) + 1, {}, "token_ordering"),
        (None, {"num_centroids": 7}, "7 clusters"),
        (None, {"centroid_intermediate_top_k": 7}, "7 of 6"),
        (None, {"num_centroids": 3, "centroid_intermediate_top_k": 1}, "centroids"),
    ],
    ids=["one token", "past the end", "unequal", "too many", "others"],
)
def test_damaged_clusters_are_refused(
    rewritten: Callable[..., Folders], tokens: Any, config: dict[str, int], reason: str
) -> None:
    """A token that is in no cluster, or past the vocabulary, would be read from foreign memory."""
    name = "masked_embedding.token_ordering"
    tensors = {} if tokens is None else {name: mx.array(tokens)}
    assert reason in refusal(rewritten(tensors, CLUSTERS, **config))
