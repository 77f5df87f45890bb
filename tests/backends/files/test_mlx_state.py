"""Running states of published MLX folders, by their settings; sizes in MLX: tests/backends/mlx."""

from typing import Any

import pytest

from backends.base import ModelError
from backends.files.mlx_folder import LayerCounts, MlxFolder, count_layers, state_bytes

QWEN: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "linear_num_value_heads": 48,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}


def folder(**config: Any) -> MlxFolder:
    return MlxFolder(config, 0)


def test_the_state_of_qwen_27b_is_as_large_as_published() -> None:
    """157 MB in llama.cpp, whose convolutions look back in 32-bit floats; in MLX in 16."""
    read = folder(**QWEN)
    assert count_layers(read) == LayerCounts(16, 0, 48)
    assert round(state_bytes(read) / 1e6) == 154


def test_layers_are_those_that_the_settings_list() -> None:
    listed = ["linear_attention", "full_attention", "linear_attention"]
    assert count_layers(folder(**QWEN, layer_types=listed)) == LayerCounts(1, 0, 2)


@pytest.mark.parametrize(
    "layers",
    [
        {"hybrid_override_pattern": "MEM*-"},
        {"hybrid_override_pattern": ["M", "E", "M", "*", "-"]},
        {"layers_block_type": ["mamba", "moe", "mamba", "attention", "mlp"]},
        {"layer_types": ["linear_attention", "moe", "linear_attention", "full_attention", "mlp"]},
    ],
)
def test_nemotron_is_listed_in_four_ways(layers: dict[str, Any]) -> None:
    read = folder(**NEMOTRON, **layers)
    assert count_layers(read) == LayerCounts(1, 0, 2)
    assert state_bytes(read) == 2 * (3 * (4096 + 2 * 8 * 128) * 2 + 4096 * 128 * 4)


def test_granite_has_keys_and_values_in_its_layers_of_attention() -> None:
    read = folder(
        model_type="granitemoehybrid", layer_types=["mamba", "attention", "mamba"],
        mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4,
    )  # fmt: skip
    assert count_layers(read) == LayerCounts(1, 0, 2)
    assert state_bytes(read) == 2 * (3 * (3072 + 256) * 2 + 3072 * 128 * 4)


def test_a_model_without_has_none() -> None:
    read = folder(model_type="llama", num_hidden_layers=3, hidden_size=64, head_dim=16)
    assert count_layers(read) == LayerCounts(3, 0, 0)
    assert state_bytes(read) == 0


@pytest.mark.parametrize(
    "damage",
    [
        {"num_hidden_layers": -1},
        {"linear_value_head_dim": "128"},
        {"layer_types": ["conv"] * 5000},
        {"hybrid_override_pattern": "M" * 5000},
    ],
)
def test_damaged_settings_are_a_model_error(damage: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"config\.json is damaged"):
        state_bytes(folder(**QWEN | damage))
