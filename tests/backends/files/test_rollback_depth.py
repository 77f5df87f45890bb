"""Copies of a running state: how many are kept, and that the engine can run with as many."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.base import Rollback
from backends.files.attention import (
    LONGEST,
    keeps_cache,
    keeps_state,
    refusal,
    rollback_of,
    state_bytes,
    usual_depth,
)
from backends.files.gguf_header import GgufHeader
from tests.fixtures.tiny.models import write_nemotron_h_moe

if TYPE_CHECKING:
    from backends.files.gguf_header import Number

_LAYERS = 64


def header(architecture: str, **figures: int | tuple[int, ...]) -> GgufHeader:
    """A header with these figures; an underscore pair stands for a dot."""
    named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in figures.items()}
    scalars = {key: value for key, value in named.items() if isinstance(value, int)}
    arrays: dict[str, tuple[Number, ...]] = {
        key: value for key, value in named.items() if isinstance(value, tuple)
    }
    return GgufHeader({"general.architecture": architecture, **scalars}, {}, (), arrays)


SSM = {
    "ssm__conv_kernel": 4, "ssm__state_size": 128, "ssm__group_count": 16, "ssm__inner_size": 4096,
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "states", "caches"),
    [
        (header("llama", block_count=2), [0, 0], [1, 1]),
        (header("mamba", block_count=2, **SSM), [1, 1], [0, 0]),
        (header("falcon-h1", block_count=2, **SSM), [1, 1], [1, 1]),
        (header("qwen35", block_count=5, full_attention_interval=2, **SSM), [1, 0] * 2 + [1],
         [0, 1] * 2 + [0]),
        (header("qwen35", block_count=5, nextn_predict_layers=1, **SSM), [1, 1, 1, 0, 0],
         [0, 0, 0, 1, 0]),
        (header("lfm2", block_count=3, shortconv__l_cache=3, embedding_length=8,
                attention__head_count_kv=(0, 2, 0)), [1, 0, 1], [0, 1, 0]),
        (header("nemotron_h", block_count=3, attention__head_count_kv=(0, 2, 0),
                feed_forward_length=(0, 0, 64), **SSM), [1, 0, 0], [0, 1, 0]),
        (header("qwen35", block_count=-1, full_attention_interval=0), [], []),
    ],
)  # fmt: skip
def test_layers_keep_a_state_or_a_cache(
    file: GgufHeader, states: list[int], caches: list[int]
) -> None:
    assert keeps_state(file) == [bool(one) for one in states]
    assert keeps_cache(file) == [bool(one) for one in caches]
    assert (state_bytes(file) > 0) == any(states)


def test_copies_take_a_small_share_of_the_weights() -> None:
    file = header("qwen35", block_count=64, **SSM)
    one = state_bytes(file)
    assert [usual_depth(file, share * 16 * one) for share in (0, 1, 3, 5, 7, 99)] == [
        3, 3, 3, 5, LONGEST, LONGEST,
    ]  # fmt: skip
    assert usual_depth(header("llama", block_count=64), 1 << 40) == 0
    assert usual_depth(header("qwen3next", block_count=64, **SSM), 1 << 40) == 0


@pytest.mark.parametrize(
    ("architecture", "kind", "why"),
    [
        ("qwen35moe", Rollback.BOUNDED, ""),
        ("qwen3next", Rollback.NONE, "llama.cpp cannot take back"),
        ("mamba", Rollback.NONE, "llama.cpp cannot take back"),
        ("kimi-k3", Rollback.NONE, "specchat has not tried"),
    ],
)
def test_an_architecture_that_takes_nothing_back_says_why(
    architecture: str, kind: Rollback, why: str
) -> None:
    assert rollback_of(architecture, has_state=True) is kind
    assert rollback_of(architecture, has_state=False) is Rollback.ANY
    assert why in refusal(architecture)
    assert architecture in refusal(architecture)


_RUN = """
import sys
from pathlib import Path
from backends import llamacpp
from backends.files import attention as rollback_depth
rollback_depth._SHARE = 1
context = llamacpp.load(Path(sys.argv[1]), threads=1).open(512)
context.forward(list(range(3, 259)), 0)
context.forward(list(range(3, 11)), 8)
context.forward([5], 1)
print(context.max_rollback)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_the_engine_runs_as_many_copies_where_nearly_all_layers_have_a_state(
    tmp_path: Path,
) -> None:
    """It plans for few operations there, and ends the process if a pass takes more."""
    trunk = ("ssm",) * (_LAYERS - 1) + ("attention",)
    path = write_nemotron_h_moe(tmp_path / "deep.gguf", trunk=trunk, nextn=0)
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, str(path)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, str(LONGEST)), ended.stderr
