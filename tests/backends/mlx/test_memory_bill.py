"""The memory bill of a model against what MLX holds of it."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.drafting import self_drafter
from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends import mlx
from backends.base import Model
from backends.mlx.running_state import HeldStates
from models.metadata.memory_bill import bill, facts_of
from models.self_draft.recipe import Recipe
from scripts.models.make_mlx_folder import make_folder
from tests.fixtures.mlx_models import HYBRIDS

SmallMlx = Callable[..., Path]


def cast(folder: Path, to: Path, dtype: str, but_for: str = "nothing") -> Path:
    """A copy of a folder with weights of another type, but for those with a word in their name."""
    shutil.copytree(folder, to)
    weights = mx.load(str(folder / "model.safetensors"))
    changed = {
        name: value if but_for in name else value.astype(getattr(mx, dtype))
        for name, value in weights.items()
    }
    mx.save_safetensors(str(to / "model.safetensors"), changed)
    return to


def check(path: Path, model: Model) -> None:
    facts = facts_of(path, "mlx")
    context = model.open(64)
    assert facts.weight_bytes == model.info.weight_bytes
    assert facts.read_bytes == model.info.bytes_read_per_token
    assert facts.attention.cache_bytes(64) == 64 * context.kv_bytes_per_token
    assert facts.state_bytes == context.state_bytes
    assert facts.attention.cache_bytes(64) + facts.state_bytes > 0


_HEADER = 4096
"""Most bytes that describe a saved state."""

HALVES = ("float16", "bfloat16")
KINDS = [
    *((kind, dtype) for kind in ("plain", "sliding") for dtype in ("float32", *HALVES)),
    ("experts", "float32"),  # MLX on a processor runs no others
    ("latent", "bfloat16"),
]

STATES = [
    *((kind, "bfloat16") for kind in HYBRIDS),
    *(("hybrid", dtype) for dtype in ("float32", "float16")),
    *((kind, "float32") for kind in ("parallel", "rwkv")),
    *(pytest.param(kind, "float16", marks=pytest.mark.slow) for kind in ("mamba2", "rwkv")),
]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_a_folder(small_mlx: SmallMlx, tmp_path: Path, kind: str, dtype: str) -> None:
    path = cast(small_mlx(kind), tmp_path / "folder", dtype)
    with closing(mlx.load(path)) as model:
        check(path, model)


@pytest.mark.parametrize(("kind", "dtype"), STATES)
def test_a_running_state(small_mlx: SmallMlx, tmp_path: Path, kind: str, dtype: str) -> None:
    """With the copy before the last pass; the bill of a model that is saved has one."""
    path = cast(small_mlx(kind), tmp_path / "folder", dtype)
    facts = facts_of(path)
    with closing(mlx.load(path)) as model:
        check(path, model)
        context = model.open(64)
        context.forward(list(range(1, 33)), 1)
        held = 2 * HeldStates(context._caches).nbytes
        assert facts.state_bytes == context.state_bytes == held > 0
        needed = facts.attention.cache_bytes(32) + context.saved_state_bytes
        assert needed <= context.save().nbytes <= needed + _HEADER


@pytest.mark.parametrize("word", ["norm", "embed_tokens"])
def test_floats_among_halves(small_mlx: SmallMlx, tmp_path: Path, word: str) -> None:
    path = cast(small_mlx("plain"), tmp_path / "folder", "bfloat16", but_for=word)
    with closing(mlx.load(path)) as model:
        check(path, model)


def test_a_router_in_floats_leaves_halves(small_mlx: SmallMlx, tmp_path: Path) -> None:
    path = cast(small_mlx("experts"), tmp_path / "folder", "bfloat16", but_for="mlp.gate.")
    assert facts_of(path).attention.number_bytes == 2


@pytest.mark.parametrize("bits", [None, 4, 8])
def test_a_folder_in_fewer_bits(
    tiny_llama: Callable[..., Path], tmp_path: Path, bits: int | None
) -> None:
    make_folder(tiny_llama(form="gpt2"), tmp_path / "folder", bits)
    with closing(mlx.load(tmp_path / "folder")) as model:
        check(tmp_path / "folder", model)


def test_a_gguf_file_in_floats(tiny_llama: Callable[..., Path]) -> None:
    path = tiny_llama(form="gpt2")
    with closing(mlx.load(path)) as model:
        check(path, model)


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize("kind", ["f16", "q4_0", "q4_1", "q8_0"])
def test_a_gguf_file_in_fewer_bits(
    tiny_llama: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    from backends.llamacpp.requantize import requantize

    path = tmp_path / "fewer.gguf"
    for _ in requantize(tiny_llama(form="gpt2"), path, kind):
        pass
    with closing(mlx.load(path)) as model:
        check(path, model)


def test_a_self_drafter(small_mlx: SmallMlx, tmp_path: Path) -> None:
    """Its scales are of the same type as the weights were: twice as large in floats."""
    wide = small_mlx("plain", hidden_size=256, intermediate_size=512, vocab_size=300)
    for path in (wide, cast(wide, tmp_path / "folder", "bfloat16")):
        with closing(mlx.load(path)) as target:
            recipe = Recipe.parse("q4_0")
            expected = self_drafter.facts(target.info, recipe)
            models = CheckedLoader(Paths.of_this_user(), lambda _: None)
            with closing(self_drafter.made(target, recipe, None, None, models)) as made:
                held = made.info.weight_bytes + 64 * made.open(64).kv_bytes_per_token
            said = bill(expected, 64)
            assert said.weights + said.cache == pytest.approx(held, rel=0.02)


def test_a_damaged_type_is_no_half(tmp_path: Path, small_mlx: SmallMlx) -> None:
    """Numbers of a type that nobody knows are counted as floats."""
    path = tmp_path / "folder"
    shutil.copytree(small_mlx("plain"), path)
    file = path / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for entry in header.values():
        if entry and "dtype" in entry:
            entry["dtype"] = "F31"
    changed = json.dumps(header).encode()
    file.write_bytes(len(changed).to_bytes(8, "little") + changed + data[8 + length :])
    assert facts_of(path).attention.number_bytes == 4
