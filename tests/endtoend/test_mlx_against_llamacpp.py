"""The same float32 weights in both engines: the same greedy text, or a near-tie that is shown."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")
pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

import gguf

from backends import llamacpp, mlx
from backends.base import Context, Model
from decoding.checks.distribution_check import divergences, greedy_reply
from decoding.generation import Limits
from decoding.prefill import prefill
from scripts.prompts import tokenized
from tests.fixtures.replied import said

TOKENS = 64
HALF_PRECISION = 0.1
"""What llama.cpp's cache of 11 bits may move a logit: 0.044 measured. MLX's cache has 24 bits."""

NEAR_TIE = 2 * HALF_PRECISION
"""Two tokens change places only where each moves by half of what lies between them."""


@pytest.fixture(scope="module")
def float32_file(demo_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with the same weights, dequantized."""
    path = tmp_path_factory.mktemp("float32") / "demo.gguf"
    reader = gguf.GGUFReader(demo_file)
    writer = gguf.GGUFWriter(path, "llama")
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def in_llamacpp(float32_file: Path) -> Iterator[Model]:
    model = llamacpp.load(float32_file)
    yield model
    model.close()


@pytest.fixture(scope="module")
def in_mlx(float32_file: Path) -> Iterator[Model]:
    model = mlx.load(float32_file)
    yield model
    model.close()


def _reply(model: Model, context: Context, prompt: list[int], tokens: int = TOKENS) -> list[int]:
    limits = Limits(tokens, model.tokenizer.end_tokens)
    return said(greedy_reply(context, prompt, limits, None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "tokens"), [(3, 24), pytest.param(6, TOKENS, marks=pytest.mark.nightly)]
)
def test_the_same_greedy_text(in_mlx: Model, in_llamacpp: Model, kinds: int, tokens: int):
    every = tokenized(in_llamacpp)
    assert [ids for _, ids in tokenized(in_mlx)] == [ids for _, ids in every]
    prompts = every[:: len(every) // kinds]
    assert len({kind for kind, _ in prompts}) == kinds
    ours, theirs = in_mlx.open(1024), in_llamacpp.open(1024)
    agreed = 0
    for kind, prompt in prompts:
        expected, found = (
            _reply(model, context, prompt, tokens)
            for model, context in ((in_llamacpp, theirs), (in_mlx, ours))
        )
        divergence = next(divergences(ours, prompt, expected), None)
        print(f"{kind}: {len(found)} and {len(expected)} tokens, {divergence or 'all the same'}")
        if divergence is None:
            assert len(found) == len(expected)
            agreed += 1
        else:
            assert divergence.margin < NEAR_TIE
    assert agreed >= kinds / 2


@pytest.mark.slow
def test_logits_differ_by_the_rounding_of_the_cache_alone(in_mlx: Model, in_llamacpp: Model):
    _, prompt = tokenized(in_llamacpp)[0]
    rows: list[np.ndarray] = []
    text = [*prompt, *_reply(in_llamacpp, in_llamacpp.open(256), prompt)][:-1]
    for model in (in_mlx, in_llamacpp):
        context = model.open(256)
        for _ in prefill(context, prompt):
            pass
        rows.append(context.forward(text[len(prompt) :], len(text) - len(prompt)).copy())
    difference = float(np.abs(rows[0] - rows[1]).max())
    print(f"logits differ by at most {difference:.4f}")
    assert difference < HALF_PRECISION
