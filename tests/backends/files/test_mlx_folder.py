"""Folders of MLX models: whole, cut, crafted and randomly damaged; figures or a ModelError."""

import json
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import ModelError
from backends.files.attention import Layers
from backends.files.mlx_folder import (
    MAX_HEADER,
    experts_of,
    is_mlx_folder,
    read_mlx_folder,
    stored_tensors,
)
from models.metadata.memory_bill import facts_of
from tests.fixtures.little_memory import taking_less_than

CONFIG: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "sliding_window": 512,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}

TENSORS: dict[str, Any] = {
    "__metadata__": {"format": "mlx"},
    "model.embed_tokens.weight": {"dtype": "U32", "shape": [100, 8], "data_offsets": [0, 3200]},
    "model.norm.weight": {"dtype": "F16", "shape": [64], "data_offsets": [3200, 3328]},
}

common = settings(max_examples=100)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.sampled_from(sorted(CONFIG)), st.integers(-5, 5), max_size=3),
)


def safetensors(tensors: Any, data_bytes: int = 3328) -> bytes:
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + bytes(data_bytes)


def write(folder: Path, config: Any = CONFIG, weights: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors(TENSORS) if weights is None else weights)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlx")


def test_a_whole_folder_is_read(folder: Path) -> None:
    assert is_mlx_folder(write(folder))
    found = facts_of(folder)
    assert found.weight_bytes == 3328
    assert (found.n_vocab, found.width, found.feed_forward) == (100, 64, 128)
    assert found.context_limit == 2048
    assert found.attention.layers == (Layers(1, 2, 16, 16), Layers(2, 2, 16, 16, 512))


def test_the_figures_of_words_may_be_in_a_part_of_the_settings(folder: Path) -> None:
    config = {"model_type": "gemma4", "text_config": {**CONFIG, "global_head_dim": 32}}
    assert facts_of(write(folder, config)).attention.layers[0] == Layers(1, 2, 32, 32)


def test_weights_of_several_files_are_added(folder: Path) -> None:
    write(folder)
    second = folder / "model-2.safetensors"
    second.write_bytes(safetensors(TENSORS))
    assert read_mlx_folder(folder).weight_bytes == 2 * 3328
    second.unlink()


def test_only_a_folder_of_settings_and_weights_is_a_model(tmp_path: Path) -> None:
    assert not is_mlx_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert not is_mlx_folder(tmp_path)
    with pytest.raises(ModelError, match=r"no weights .*: model\.safetensors is missing"):
        read_mlx_folder(tmp_path)


def test_a_link_that_leads_to_itself_is_an_error(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    with pytest.raises(ModelError):
        read_mlx_folder(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 1 << 20, MAX_HEADER, 1 << 31, 1 << 62, (1 << 64) - 1])
def test_a_wrong_length_is_an_error_and_takes_no_memory(tmp_path: Path, length: int) -> None:
    path = tmp_path / "long.safetensors"
    path.write_bytes(struct.pack("<Q", length) + safetensors(TENSORS)[8:])
    with taking_less_than(1 << 20), pytest.raises(ModelError, match="damaged or cut short"):
        stored_tensors(path)


@pytest.mark.parametrize(
    "header",
    [
        [],
        "text",
        {"t": None},
        {"t": {"shape": [1], "data_offsets": [0]}},
        {"t": {"shape": [1], "data_offsets": [0, 4, 8]}},
        {"t": {"shape": [1], "data_offsets": [4, 0]}},
        {"t": {"shape": [1], "data_offsets": [0, 3329]}},
        {"t": {"shape": [1], "data_offsets": [-4, 4]}},
        {"t": {"shape": [1], "data_offsets": [0, 1 << 70]}},
        {"t": {"shape": [1], "data_offsets": [0.0, 4.0]}},
        {"t": {"shape": [True], "data_offsets": [0, 4]}},
        {"t": {"shape": [1] * 9, "data_offsets": [0, 4]}},
    ],
)
def test_an_entry_that_cannot_be_is_an_error(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "odd.safetensors"
    path.write_bytes(safetensors(header))
    with pytest.raises(ModelError, match="damaged or cut short"):
        stored_tensors(path)


@pytest.mark.parametrize("depth", [10_000, MAX_HEADER // 2])
def test_brackets_without_end_are_an_error(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "deep.safetensors"
    path.write_bytes(struct.pack("<Q", depth) + b"[" * depth)
    with pytest.raises(ModelError, match="damaged or cut short"):
        stored_tensors(path)
    (tmp_path / "config.json").write_bytes(b'{"a":' * 10_000)
    with pytest.raises(ModelError, match="damaged"):
        read_mlx_folder(tmp_path)


def test_a_header_full_of_empty_lists_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "full.safetensors"
    text = b"[" + b"[]," * (MAX_HEADER // 3 - 2) + b"[]]"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with taking_less_than(100 << 20), pytest.raises(ModelError):
        stored_tensors(path)


def test_settings_too_long_are_an_error(folder: Path) -> None:
    write(folder)
    (folder / "config.json").write_bytes(b'{"a": "' + b"x" * (1 << 20) + b'"}')
    with pytest.raises(ModelError, match="holds no settings"):
        read_mlx_folder(folder)


@common
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_flipped_bytes_give_figures_or_a_model_error(
    folder: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(safetensors(TENSORS, 40))
    for at, value in changes:
        data[at % len(data)] = value
    write(folder, weights=bytes(data[: len(data) - cut]))
    with taking_less_than(1 << 20), suppress(ModelError):
        assert facts_of(folder).weight_bytes <= len(data) * len(TENSORS)


@common
@given(st.dictionaries(st.sampled_from([*sorted(CONFIG), "text_config"]), values, min_size=1))
def test_settings_of_any_kind_give_figures_or_a_model_error(
    folder: Path, changes: dict[str, Any]
) -> None:
    write(folder, CONFIG | changes)
    with taking_less_than(1 << 20), suppress(ModelError):
        assert facts_of(folder).attention.cache_bytes(512) >= 0


@pytest.mark.parametrize(
    "settings",
    [
        {"num_experts": 8, "num_experts_per_tok": 2},
        {"num_local_experts": 8, "num_experts_per_tok": 2},
        {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
        {"num_experts": 8, "num_experts_per_token": 2},
        {"num_experts": 8, "top_k_experts": 2},
        {"moe_num_experts": 8, "moe_k": 2},
        {"n_routed_experts": 8, "moe_topk": 2},
    ],
)
def test_a_mixture_is_known_by_any_of_its_names(settings: dict[str, int], tmp_path: Path) -> None:
    found = read_mlx_folder(write(tmp_path, CONFIG | settings))
    assert (found.experts, found.active_experts) == (8, 2)
    fewer = found.with_active_experts(1)
    assert (fewer.experts, fewer.active_experts) == (8, 1)


def test_every_mixture_that_mlx_lm_runs_names_its_experts_so() -> None:
    """By the settings that the source of each architecture declares."""
    mlx_lm = pytest.importorskip("mlx_lm", reason="MLX is not installed")
    folder = Path(mlx_lm.__file__).parent / "models"
    for file in folder.glob("*.py"):
        source = file.read_text(encoding="utf-8")
        if re.search(r"Switch(GLU|MLP)\(", source) and file.stem != "switch_layers":
            declared = dict.fromkeys(re.findall(r"^    (\w+)\s*:", source, re.MULTILINE), 2)
            assert experts_of(lambda key, known=declared: known.get(key, 0)) == (2, 2), file.stem
