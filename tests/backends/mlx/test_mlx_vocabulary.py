"""The vocabulary of an MLX folder, read without its weights."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import ModelError, Rollback
from backends.engines.model_loading import vocabulary

SmallMlx = Callable[..., Path]


def test_it_is_that_of_the_loaded_model(small_mlx: SmallMlx) -> None:
    model = mlx.load(small_mlx("plain"))
    ours = model.tokenizer
    with vocabulary(small_mlx("plain")) as found:
        assert found.rollback is Rollback.ANY
        assert found.tokenizer.n_vocab == ours.n_vocab
        assert [*map(found.tokenizer.entry, range(ours.n_vocab))] == [
            *map(ours.entry, range(ours.n_vocab))
        ]
    model.close()


def test_a_running_state_is_told(small_mlx: SmallMlx) -> None:
    with vocabulary(small_mlx("hybrid")) as found:
        assert found.rollback is Rollback.BOUNDED


def test_an_unknown_architecture_is_told(small_mlx: SmallMlx, tmp_path: Path) -> None:
    for file in small_mlx("plain").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "unheard-of"}))
    with pytest.raises(ModelError, match="unheard-of"), vocabulary(tmp_path):
        pass
