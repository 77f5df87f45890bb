"""Vectors of texts through the real engine: as the formula has them, in any batch."""

import ctypes
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import ModelError, UsageError
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.llamacpp.embedding import Embedder
from tests.fixtures.rounding import bound
from tests.fixtures.tiny.bert import (
    CLS,
    LAST,
    MEAN,
    random_weights,
    reference,
    tokens_of,
    write_bert,
)
from tests.fixtures.tiny.kinds import Tiny

_WEIGHTS = random_weights()
_TEXTS = ["hello world.", "a", "", "is it so? " * 3, "the cat sat on the mat."]


@pytest.fixture(params=(MEAN, CLS, LAST))
def embedder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedder]:
    path = write_bert(tmp_path / "bert.gguf", _WEIGHTS, pooling=request.param)
    with (
        closing(llamacpp.load(path, threads=1)) as model,
        closing(Embedder(model)) as embedder,
    ):
        yield embedder


def test_a_vector_is_that_of_the_formula(
    embedder: Embedder, request: pytest.FixtureRequest
) -> None:
    pooling = request.node.callspec.params["embedder"]
    long = "z" * 200
    rows, counts = embedder.embed([*_TEXTS, long])
    assert (rows.dtype, embedder.most_tokens) == (np.float32, 64)
    for text, row, count in zip([*_TEXTS, long], rows, counts, strict=True):
        tokens = tokens_of(text)
        assert count == len(tokens)
        tokens = tokens if len(tokens) <= 64 else [*tokens[:63], tokens[-1]]
        expected = reference(_WEIGHTS, tokens, pooling=pooling)
        assert row == pytest.approx(expected, abs=1e-3)  # attention is in half floats
        others = {MEAN, CLS, LAST} - {pooling}
        wrong = [reference(_WEIGHTS, tokens, pooling=other) for other in others]
        assert all(np.abs(row - one).max() > 0.01 for one in wrong)


def test_what_else_is_embedded_changes_no_vector(embedder: Embedder) -> None:
    random = Random(1)
    letters = "abcdefgh ."
    texts = ["".join(random.choices(letters, k=random.randint(0, 40))) for _ in range(60)]
    together, _ = embedder.embed(texts)
    alone = np.vstack([embedder.embed([text])[0] for text in texts])
    assert together == pytest.approx(alone, abs=2e-3)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(60), abs=1e-5)
    assert embedder.embed([])[0].shape == (0, embedder.width)
    for odd in ("\ud800", "\0", "漢字 🙂", "[SEP] [CLS]", "é" * 10_000):
        assert np.isfinite(embedder.embed([odd])[0]).all()


def test_a_model_that_reads_from_left_to_right_embeds_its_last_token(
    tiny: Tiny, tmp_path: Path
) -> None:
    """As Qwen3's embedding models do: the hidden state of the last token, after the norm."""
    from llama_cpp import llama_cpp as api

    path = tmp_path / "last.gguf"
    _with_key(tiny("qwen3"), path, "qwen3.pooling_type", LAST)
    with closing(llamacpp.load(path, threads=1)) as model, closing(Embedder(model)) as embedder:
        rows, _ = embedder.embed(["Hello there.", "Another text", "Hello there."])
        assert rows[0] == pytest.approx(rows[2], abs=bound(1e-5, 5e-3))
        parameters = api.llama_context_default_params()
        parameters.n_ctx, parameters.embeddings, parameters.pooling_type = 256, True, 0
        parameters.n_threads = parameters.n_threads_batch = 1
        pointer = api.llama_init_from_model(model.pointer, parameters)
        assert pointer is not None
        tokens = model.tokenizer.whole("Another text")
        held = (ctypes.c_int32 * len(tokens))(*tokens)
        assert not api.llama_decode(pointer, api.llama_batch_get_one(held, len(tokens)))
        row = np.ctypeslib.as_array(api.llama_get_embeddings_ith(pointer, -1), (embedder.width,))
        assert rows[1] == pytest.approx(row / np.linalg.norm(row), abs=bound(1e-3, 5e-3))
        api.llama_free(pointer)


def _with_key(source: Path, target: Path, key: str, value: int) -> None:
    """Copy a file with one more key."""
    import gguf

    from tests.fixtures.tiny.tiny_file import finish, set_key

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            sub = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub)
    set_key(writer, key, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    finish(writer)


@pytest.mark.parametrize("pooling", [None, 0, 4, 9])
def test_other_models_are_refused(tmp_path: Path, pooling: int | None) -> None:
    path = write_bert(tmp_path / "bert.gguf", _WEIGHTS, pooling=pooling)
    with closing(llamacpp.load(path, threads=1)) as model:
        with pytest.raises(UsageError, match="bert is no embedding model"):
            Embedder(model)
        with pytest.raises(ModelError, match="cannot chat"):
            model.open(32)


def test_a_closed_context_tells(tmp_path: Path) -> None:
    with closing(llamacpp.load(write_bert(tmp_path / "b.gguf", _WEIGHTS), threads=1)) as model:
        embedder = Embedder(model)
        embedder.close()
        embedder.close()
        with pytest.raises(ModelError, match="closed"):
            embedder.embed(["a"])


def test_a_file_that_stops_the_engine_does_so_in_a_child(tmp_path: Path) -> None:
    """Its word for the beginning of a text is none that it has: the engine ends the process."""
    good = write_bert(tmp_path / "good.gguf", _WEIGHTS)
    bad = write_bert(tmp_path / "bad.gguf", _WEIGHTS, beginning=5000)
    with closing(ProofProcess()) as process:
        process.prove(CrashCheck(good, "llamacpp", 1, 0, embeds=True), 1 << 20)
        with pytest.raises(ModelError, match=r"bad\.gguf"):
            process.prove(CrashCheck(bad, "llamacpp", 1, 0, embeds=True), 1 << 20)
