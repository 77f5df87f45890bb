"""A mixture of equal experts says what its source says."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.streaming.weight_plan import Role, weight_layout
from scripts.models.make_experts import make_experts
from scripts.models.pad_model import agreement


def test_experts_that_are_copies_give_the_logits_of_the_source(
    tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    source, target = tiny_llama(), tmp_path / "experts.gguf"
    make_experts(source, target, 4, 2)
    layout = weight_layout(target)
    assert layout.expert_share == 0.5
    assert sum(one.role == Role.EXPERTS for one in layout.tensors) == 3 * layout.n_layers
    same, difference = agreement(source, target, 64)
    assert same > 0.98
    assert difference < 0.02
    with closing(llamacpp.load(target)) as model:
        assert model.info.active_experts == 2
        assert model.info.expert_share == 0.5
