"""GGUF files in MLX: the same logits as llama.cpp's and as the folder made of one; refusals."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")
pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

import gguf

from backends import llamacpp, mlx
from backends.base import Model, ModelError
from backends.files.mlx_gguf import reason_against
from backends.llamacpp.requantize import requantize
from scripts.models.make_mlx_folder import main as make_folder

N_VOCAB = 320
TEXT = "the rain in Spain, 12 hats and the thing on the hill"
HALF_PRECISION = 0.05
"""What llama.cpp's keys and values of 11 bits may move logits; a wrong row moves them by 1."""

FACTORS = (1.0, 1.0, 1.2, 1.7, 2.5, 4.0, 8.0, 8.0)


@pytest.fixture
def plain(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama(n_vocab=N_VOCAB, form="gpt2")


def logits(model: Model) -> np.ndarray:
    context = model.open(128)
    try:
        rows = context.forward(model.tokenizer.encode(TEXT, special=False), 8).copy()
    finally:
        model.close()
    assert rows.std() > 1, "logits that are all alike prove nothing"
    return rows


def requantized(source: Path, folder: Path, kind: str) -> Path:
    target = folder / f"{kind}.gguf"
    for _ in requantize(source, target, kind):
        pass
    return target


def test_float32_gives_the_logits_of_llama_cpp(plain: Path):
    assert not reason_against(plain)
    assert np.abs(logits(mlx.load(plain)) - logits(llamacpp.load(plain))).max() < HALF_PRECISION


def test_a_stretched_rotary_embedding(tiny_llama: Callable[..., Path], tmp_path: Path):
    """No config.json can say by how much, so no folder is made."""
    path = tiny_llama(n_vocab=N_VOCAB, form="gpt2", rope_factors=FACTORS)
    stretched = logits(mlx.load(path))
    assert np.abs(stretched - logits(llamacpp.load(path))).max() < HALF_PRECISION
    assert np.abs(stretched - logits(mlx.load(tiny_llama(n_vocab=N_VOCAB, form="gpt2")))).max() > 1
    assert make_folder([str(path), str(tmp_path / "folder")]) == 1


@pytest.mark.parametrize(
    ("kind", "name"), [("q4_0", "4-bit"), ("q4_1", "4-bit"), ("q8_0", "8-bit")]
)
def test_quantized_layers_run_as_they_are(kind: str, name: str, plain: Path, tmp_path: Path):
    """Against their values in float32, from which they differ by the arithmetic alone."""
    path = requantized(plain, tmp_path, kind)
    model = mlx.load(path)
    assert model.info.quantization == name
    assert model.info.weight_bytes < mlx.load(plain).info.weight_bytes / 2
    assert make_folder([str(path), str(tmp_path / "folder")]) == 0
    exact = logits(mlx.load(tmp_path / "folder"))
    assert np.abs(logits(model) - exact).max() < 0.01 * np.abs(exact).max()


def test_half_precision(plain: Path, tmp_path: Path):
    path = requantized(plain, tmp_path, "f16")
    exact = logits(mlx.load(plain))
    assert mlx.load(path).info.quantization == "float16"
    assert np.abs(logits(mlx.load(path)) - exact).max() < 0.01 * np.abs(exact).max()


def test_a_folder_made_of_a_file_is_the_same_model(plain: Path, tmp_path: Path):
    folder = tmp_path / "folder"
    assert make_folder([str(plain), str(folder)]) == 0
    ours, made = mlx.load(plain), mlx.load(folder)
    assert made.tokenizer.end_tokens == ours.tokenizer.end_tokens
    assert made.tokenizer.eos == ours.tokenizer.eos
    assert made.tokenizer.chat_template == ours.tokenizer.chat_template
    text = TEXT + "<|endoftext|>"
    for special in (True, False):
        ids = made.tokenizer.encode(text, special=special)
        assert ids == ours.tokenizer.encode(text, special=special)
    assert np.array_equal(logits(made), logits(ours))


def test_a_folder_of_fewer_bits(plain: Path, tmp_path: Path):
    folder = tmp_path / "folder"
    assert make_folder([str(plain), str(folder), "--bits", "8"]) == 0
    made, exact = mlx.load(folder), logits(mlx.load(plain))
    assert made.info.quantization == "8-bit"
    assert np.abs(logits(made) - exact).max() < 0.1 * np.abs(exact).max()


def test_a_folder_that_is_there_is_left_alone(plain: Path, tmp_path: Path, capsys):
    assert make_folder([str(plain), str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_files_of_other_kinds_are_refused_with_the_reason(
    plain: Path, tiny_llama: Callable[..., Path], tiny_mamba: Path
):
    assert reason_against(plain) == ""
    assert "mamba" in reason_against(tiny_mamba)
    assert "tokenizer" in reason_against(tiny_llama())
    assert "split" in reason_against(plain.with_name("x-00001-of-00002.gguf"))
    with pytest.raises(ModelError, match="mamba"):
        mlx.load(tiny_mamba)


def test_a_quantization_without_a_layer_is_refused(plain: Path, tmp_path: Path):
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(plain.read_bytes())
    tensor = gguf.GGUFReader(copy, "r+").tensors[3]
    tensor.field.parts[-2][0] = gguf.GGMLQuantizationType.Q6_K
    assert tensor.name in reason_against(copy)


def test_a_file_cut_inside_its_last_tensor_is_damaged(plain: Path, tmp_path: Path):
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(plain.read_bytes()[:-64])
    with pytest.raises(ModelError):
        reason_against(copy)
    with pytest.raises(ModelError, match="incomplete"):
        mlx.load(copy)


def test_a_missing_file_is_not_readable(tmp_path: Path):
    with pytest.raises(ModelError):
        reason_against(tmp_path / "none.gguf")
    with pytest.raises(ModelError):
        mlx.load(tmp_path / "none.gguf")
