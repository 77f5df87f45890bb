"""Folders with heads are told apart, and refused in words where they could not draft."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedKind
from backends.files.head_folders.block_layout import LayerSight, block_layout
from backends.files.head_folders.eagle3_layout import eagle3_layout
from backends.files.head_folders.head_folder import drafter_in_folder, kind_of, misfit
from backends.files.head_folders.shapes import drafted_tokens
from backends.files.head_folders.stored_head import read_head
from backends.files.mlx_folder import MlxFolder
from tests.fixtures.safetensors_file import write_safetensors
from tests.fixtures.tiny.head_folder import HeadFolderParts, parts_of_folder
from tests.fixtures.tiny.heads import BLOCK, DFLASH_TAPS, DRAFTED, EAGLE3_TAPS, MASK, OWN_WIDTH
from tests.fixtures.tiny.mlx_pairs import Twin
from tests.fixtures.tiny.tiny_file import WIDTH

Change = Callable[[HeadFolderParts], None]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
N_VOCAB = 354


def target(**changes: Any) -> MlxFolder:
    """A model that the tiny heads fit."""
    usual = {"model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": 6}
    return MlxFolder(usual | {"vocab_size": N_VOCAB} | changes, 0)


@pytest.mark.parametrize(
    ("name", "kind", "longest", "taps"),
    [
        ("eagle3", TrainedKind.EAGLE3, 0, EAGLE3_TAPS),
        ("eagle3-borrowing", TrainedKind.EAGLE3, 0, EAGLE3_TAPS),
        ("dflash", TrainedKind.DFLASH, BLOCK - 1, DFLASH_TAPS),
        ("dflash2", TrainedKind.DFLASH, BLOCK - 1, DFLASH_TAPS),
        ("dspark", TrainedKind.DSPARK, BLOCK, DFLASH_TAPS),
    ],
)
def test_a_head_is_known_by_its_tensors(
    twin_of: Twin, name: str, kind: TrainedKind, longest: int, taps: tuple[int, ...]
) -> None:
    found = drafter_in_folder(twin_of(name))
    assert found is not None
    assert (found.kind, found.fault, found.is_alone) == (kind, "", True)
    assert (found.width, found.n_vocab) == (WIDTH, N_VOCAB)
    assert (found.longest, found.target_layers) == (longest, taps)
    assert min(found.draw_bytes, found.read_bytes) > 0
    assert misfit(found, target()) == ""


def test_a_model_brings_nothing(twin_of: Twin) -> None:
    assert drafter_in_folder(twin_of("llama")) is None


def test_shapes_are_those_of_the_tensors(twin_of: Twin) -> None:
    layout = eagle3_layout(read_head(twin_of("eagle3")))
    assert (layout.width, layout.target_width, layout.n_taps) == (OWN_WIDTH, WIDTH, 3)
    assert (layout.n_drafted, layout.has_embeddings) == (len(DRAFTED), True)
    assert (layout.attention.heads, layout.attention.kv_heads) == (2, 1)
    block = block_layout(read_head(twin_of("dflash2")))
    assert block.selector is not None
    assert (block.mask, block.selector.candidates, block.from_last) == (MASK, 4, False)
    assert block.layers == (LayerSight(), LayerSight())


def test_layers_are_counted_by_inputs_at_the_top_and_by_outputs_inside(
    twin_of: Twin, tmp_path: Path
) -> None:
    parts = parts_of_folder(twin_of("eagle3"))
    del parts.settings["eagle_config"]
    parts.settings[LAYER_IDS] = [1, 2, 5]
    assert eagle3_layout(read_head(parts.write(tmp_path))).taps_in(6) == (1, 2, 5)
    del parts.settings[LAYER_IDS]
    assert eagle3_layout(read_head(parts.write(tmp_path))).taps_in(32) == (2, 16, 29)
    parts = parts_of_folder(twin_of("dflash"))
    parts.settings["aux_hidden_state_layer_ids"] = [1, 3]
    assert block_layout(read_head(parts.write(tmp_path))).taps == (1, 3)


def as_speculators(parts: HeadFolderParts) -> None:
    """The layout of vLLM's speculators."""
    inner = {
        key: parts.settings.pop(key)
        for key in list(parts.settings)
        if key not in ("architectures", "draft_vocab_size", "target_hidden_size", "eagle_config")
    }
    parts.settings.pop("eagle_config")
    parts.settings |= {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": inner,
        "norm_before_residual": True,
        LAYER_IDS: list(EAGLE3_TAPS),
    }
    parts.tensors = {
        name.replace("midlayer.", "layers.0."): values for name, values in parts.tensors.items()
    }


def test_both_published_layouts_are_the_same_head(twin_of: Twin, tmp_path: Path) -> None:
    plain = eagle3_layout(read_head(twin_of("eagle3")))
    parts = parts_of_folder(twin_of("eagle3"))
    as_speculators(parts)
    other = eagle3_layout(read_head(parts.write(tmp_path)))
    assert other.names.keys() == plain.names.keys()
    assert (other.attention, other.rotary, other.taps) == (
        plain.attention,
        plain.rotary,
        plain.taps,
    )
    assert (plain.keeps_normed, other.keeps_normed) == (False, True)


def test_windows_are_of_the_layers_that_have_them(twin_of: Twin, tmp_path: Path) -> None:
    parts = parts_of_folder(twin_of("dflash"))
    parts.settings |= {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 8,
        "use_sliding_window": True,
    }
    assert block_layout(read_head(parts.write(tmp_path))).layers == (LayerSight(8), LayerSight())
    parts.settings["dflash_config"] |= {"use_swa": True, "swa_window_size": 6, "causal": True}
    assert block_layout(read_head(parts.write(tmp_path))).layers == (LayerSight(6, True),) * 2


def test_tokens_that_a_head_drafts_are_distances_in_the_file(twin_of: Twin) -> None:
    head = read_head(twin_of("eagle3"))
    found = drafted_tokens(head.files["d2t"], head.tensors["d2t"], N_VOCAB)
    assert found.tolist() == list(DRAFTED)


def settings(**changes: Any) -> Change:
    return lambda parts: parts.settings.update(changes)


def own(**changes: Any) -> Change:
    return lambda parts: parts.settings["dflash_config"].update(changes)


def without(name: str) -> Change:
    return lambda parts: parts.tensors.__delitem__(name)


def added(name: str, *shape: int) -> Change:
    return lambda parts: parts.tensors.update({name: np.ones(shape, np.float32)})


REFUSED: list[tuple[str, Change, str]] = [
    ("eagle3", without("fc.weight"), "lacks fc.weight"),
    ("eagle3", without("d2t"), "lacks d2t"),
    ("eagle3", without("embed_tokens.weight"), "embeddings that it borrows"),
    ("eagle3", without("midlayer.self_attn.v_proj.weight"), "lacks layer.self_attn.v_proj"),
    ("eagle3", without("norm.weight"), "lacks norm.weight"),
    ("eagle3", added("midlayer.extra.weight", 4), "a tensor layer.extra.weight"),
    ("eagle3", added("layers.1.mlp.up_proj.weight", 4, 4), "a tensor layers.1"),
    ("eagle3", added("fc.scales", 4, 4), "fc"),
    ("eagle3", settings(num_hidden_layers=2), "2 layers, and 1 can be run"),
    ("eagle3", settings(speculators_model_type="peagle"), "of the kind peagle"),
    ("eagle3", settings(transformer_layer_config={"a": 1}), "norm_before_residual"),
    ("eagle3", settings(norm_before_fc=True), "norm_before_fc is True"),
    ("eagle3", settings(fc_norm=True), "fc_norm is True"),
    ("eagle3", settings(vocab_size=300), "embed_tokens is 354"),
    ("eagle3", settings(draft_vocab_size=90), "lm_head is 100"),
    ("eagle3", settings(num_attention_heads=4), "num_attention_heads is 4"),
    ("eagle3", settings(head_dim=24), "no whole heads of 24"),
    ("eagle3", settings(hidden_act="gelu"), "activation is gelu"),
    ("eagle3", settings(rope_scaling={"rope_type": "longrope"}), "scaled by longrope"),
    ("eagle3", settings(rope_scaling={"rope_type": "yarn"}), "scaled by yarn"),
    ("eagle3", settings(rms_norm_eps=0), "rms_norm_eps"),
    ("eagle3", settings(rope_theta="big"), "rope_theta"),
    ("eagle3", settings(eagle_config={LAYER_IDS: "all"}), LAYER_IDS),
    ("eagle3", settings(eagle_config={"use_aux_hidden_state": False}), "reads the last layer"),
    ("dflash", without("hidden_norm.weight"), "lacks hidden_norm.weight"),
    ("dflash", without("layers.1.self_attn.k_norm.weight"), "lacks layers.1.self_attn.k_norm"),
    ("dflash", added("layers.2.mlp.up_proj.weight", 4, 4), "3 layers, not 2"),
    ("dflash", added("layers.0.layer_scalar", 1), "layers.0.layer_scalar"),
    ("dflash", settings(block_size=1), "blocks of 1"),
    ("dflash", settings(block_size=None), "blocks of 0"),
    ("dflash", own(mask_token_id=None), "mask_token_id"),
    ("dflash", own(mask_token_id=N_VOCAB), "mask_token_id"),
    ("dflash", own(target_layer_ids=[]), "target_layer_ids"),
    ("dflash", own(target_layer_ids=[1]), "embeddings that it borrows"),
    ("dflash", settings(vocab_size=None), "vocab_size"),
    ("dflash", settings(dflash_config=3), "dflash_config"),
    ("dspark", settings(markov_head_type="rnn"), "markov_head_type"),
    ("dspark", settings(markov_rank=8), "markov_rank is 8"),
    ("dspark", without("markov_head.markov_w1.weight"), "lacks markov_head.markov_w1"),
    ("dspark", without("markov_head.markov_w2.weight"), "lacks markov_head.markov_w2"),
    ("dspark", added("markov_head.gate_proj.weight", 4, 4), "markov_head.gate_proj"),
    ("dflash2", own(selector_top_k=0), "selects among 0"),
    ("dflash2", own(conv_group_size=7), "groups of 7"),
    ("dflash2", own(conv_kernel_size=4), "kernel_projection is"),
    ("dflash2", without("candidate_selector.successor_codebook"), "successor_codebook"),
    ("dflash2", without("layers.0.mlp_conv.base_kernel"), "mlp_conv.base_kernel"),
]


@pytest.mark.parametrize(("name", "change", "told"), REFUSED)
def test_what_could_not_draft_says_why(
    twin_of: Twin, tmp_path: Path, name: str, change: Change, told: str
) -> None:
    parts = parts_of_folder(twin_of(name))
    change(parts)
    found = drafter_in_folder(parts.write(tmp_path))
    assert found is not None
    assert told in found.fault
    assert misfit(found, target()) == found.fault


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_size": 128}, "numbers; the model's have 128"),
        ({"vocab_size": 300}, "knows 354 tokens, the model 300"),
        ({"num_hidden_layers": 4}, "reads layer 4 of a model whose last one is 3"),
    ],
)
def test_a_head_of_another_model_is_no_match(
    twin_of: Twin, changes: dict[str, int], told: str
) -> None:
    found = drafter_in_folder(twin_of("eagle3"))
    assert found is not None
    assert told in misfit(found, target(**changes))


@pytest.mark.parametrize(
    "distances",
    [[0, -1], [0, 400], [-400, 0], [1 << 40, 0], [-(1 << 63), 0], [(1 << 63) - 1, (1 << 63) - 1]],
    ids=["twice", "far", "low", "huge", "least", "most"],
)
def test_tokens_that_do_not_exist_are_refused(tmp_path: Path, distances: list[int]) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", {"d2t": np.array(distances)})
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    head = read_head(tmp_path)
    with pytest.raises(ValueError, match="d2t leads to"):
        drafted_tokens(path, head.tensors["d2t"], N_VOCAB)


def test_weights_in_a_pickle_are_named(tmp_path: Path) -> None:
    """As the first heads of EAGLE-3 are published."""
    config = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    found = drafter_in_folder(tmp_path)
    assert found is not None
    assert "pytorch_model.bin, a program" in found.fault


@pytest.mark.parametrize("has_pickle", [False, True])
def test_next_token_layers_without_weights(tmp_path: Path, has_pickle: bool) -> None:
    """As of a download that lacks its largest file."""
    config = {"model_type": "qwen3_5_mtp", "hidden_size": 8, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if has_pickle:
        (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    found = drafter_in_folder(tmp_path)
    assert found is not None
    assert found.is_alone
    assert found.fault.startswith("its weights are in" if has_pickle else "it has no weights")


def test_a_tensor_in_two_files_is_refused(twin_of: Twin, tmp_path: Path) -> None:
    folder = parts_of_folder(twin_of("eagle3")).write(tmp_path)
    (folder / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match=re.escape("is also in model.safetensors")):
        drafter_in_folder(folder)


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
def test_a_pipe_among_the_weights_is_refused_at_once(twin_of: Twin, tmp_path: Path) -> None:
    """Opening it would wait for somebody to write to it."""
    folder = parts_of_folder(twin_of("eagle3")).write(tmp_path)
    os.mkfifo(folder / "other.safetensors")
    with pytest.raises(ModelError, match="not a regular file"):
        drafter_in_folder(folder)


MTP = ("fc.weight", "norm.weight", "pre_fc_norm_hidden.weight", "layers.0.mlp.up_proj.weight")


@pytest.mark.parametrize(
    ("names", "model_type", "alone", "fault"),
    [
        (MTP, "qwen3_5_mtp", True, ""),
        ([f"mtp.{name}" for name in MTP], "qwen3_5", True, ""),
        (["model.layers.0.a", *(f"mtp.{name}" for name in MTP)], "qwen3_5", False, ""),
        (["model.layers.0.a", "mtp.layers.0.eh_proj.weight"], "nemotron_h", False, "eh_proj"),
    ],
)
def test_next_token_layers_are_known_by_their_names(
    tmp_path: Path, names: list[str], model_type: str, alone: bool, fault: str
) -> None:
    write_safetensors(
        tmp_path / "model.safetensors", {name: np.ones(4, np.float32) for name in names}
    )
    config = {"model_type": model_type, "hidden_size": 8, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert kind_of(read_head(tmp_path)) is TrainedKind.NEXT_TOKEN_LAYERS
    found = drafter_in_folder(tmp_path)
    assert found is not None
    assert fault in found.fault
    assert bool(found.fault) is bool(fault)
    assert found.is_alone is alone
    if not fault:
        assert (found.architecture, found.layers, found.width) == ("qwen3_5", 1, 8)
