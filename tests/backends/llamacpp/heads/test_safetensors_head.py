"""EAGLE-3 heads in safetensors are refused with what to do about it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends.base import ModelError
from backends.llamacpp.head_checks import checked_head
from tests.fixtures.tiny.kinds import Tiny

NAME = "LlamaForCausalLMEagle3"
LAYERS = "eagle_aux_hidden_state_layer_ids"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "fc.weight", "--target-model-dir"),
    ({"architectures": ["Eagle3Speculator"]}, "fc.weight", "--target-model-dir"),
    ({"eagle_config": {LAYERS: [1, 2, 3]}}, "fc.weight", f"Move {LAYERS}"),
    ({"norm_output": True}, "fc.weight", "leaves out a norm (norm_output)"),
    ({}, "fc_norm.weight", "leaves out a norm (fc_norm)"),
    ({"architectures": ["LlamaForCausalLM"]}, "fc.weight", "reads heads in GGUF"),
    ({"architectures": "none"}, "fc.weight", "reads heads in GGUF"),
]


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize(("settings", "tensor", "told"), REFUSED)
def test_a_head_in_safetensors_is_refused_in_words(
    tiny: Tiny,
    tmp_path: Path,
    settings: dict[str, Any],
    tensor: str,
    told: str,
    is_folder: bool,
) -> None:
    file = tmp_path / "model.safetensors"
    header = json.dumps({tensor: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": [NAME]} | settings), encoding="utf-8")
    with pytest.raises(ModelError) as refusal:
        checked_head(tmp_path if is_folder else file, tiny("llama"))
    assert told in str(refusal.value)


def test_damaged_settings_are_named(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="is damaged"):
        checked_head(tmp_path, tiny("llama"))
