"""Folders of a small model for tests to damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(small_mlx: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a small model, to be damaged."""
    return Path(shutil.copytree(small_mlx("plain"), tmp_path / "model"))


@pytest.fixture
def sharded(folder: Path) -> Path:
    """The same in two files with an index, as large models come."""
    import mlx.core as mx

    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    found: dict[str, str] = {}
    for shard, part in zip(SHARDS, (names[::2], names[1::2]), strict=True):
        mx.save_safetensors(str(folder / shard), {name: weights[name] for name in part})
        found |= dict.fromkeys(part, shard)
    (folder / INDEX).write_text(json.dumps({"weight_map": found}))
    return folder
