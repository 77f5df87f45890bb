"""What the backend tells of a model, and its tokenizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Model
from backends.llamacpp import library


def test_info_of_the_bundled_model(demo: Model, demo_file: Path):
    info = demo.info
    assert info.architecture == "llama"
    assert info.quantization == "Q4_1"
    assert info.parameters == 134_515_008
    assert info.n_layers == 30
    assert info.context_limit == 8192
    # Its embedding doubles as the output layer, so that a token reads every weight once.
    assert info.bytes_read_per_token == pytest.approx(info.weight_bytes, rel=0.001)
    assert info.weight_bytes < demo_file.stat().st_size


def test_an_input_embedding_of_its_own_is_not_read_per_token(tiny_llama: Callable[..., Path]):
    model = llamacpp.load(tiny_llama())
    embedding_bytes = model.info.n_vocab * 32 * 4
    assert model.info.weight_bytes - model.info.bytes_read_per_token == embedding_bytes
    model.close()


@pytest.fixture(scope="module")
def known_bytes(demo: Model) -> set[int]:
    """Bytes that have a token: this model's vocabulary lacks some control characters."""
    pieces = map(demo.tokenizer.piece, range(demo.info.n_vocab))
    return {piece[0] for piece in pieces if len(piece) == 1}


@given(text=st.text())
def test_any_text_survives_the_tokenizer(demo: Model, known_bytes: set[int], text: str):
    assume(known_bytes.issuperset(text.encode()))
    tokenizer = demo.tokenizer
    tokens = tokenizer.encode(text, special=False)
    assert b"".join(map(tokenizer.piece, tokens)).decode() == text


def test_control_texts_are_tokens_only_where_that_is_meant(demo: Model):
    tokenizer = demo.tokenizer
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    spelled = tokenizer.encode("<|im_end|>", special=False)
    assert not tokenizer.end_tokens.intersection(spelled)
    assert "<|im_end|>" in tokenizer.special_texts
    assert tokenizer.piece(2) == b""


def test_weights_are_not_rearranged_for_kernels_that_round_otherwise(
    monkeypatch: pytest.MonkeyPatch,
):
    library.repacking_is_exact.cache_clear()
    monkeypatch.setattr(library, "system_info", lambda: "CPU : AVX2 = 1 | AMX_INT8 = 1 | ")
    assert not library.repacking_is_exact()
    library.repacking_is_exact.cache_clear()
    monkeypatch.setattr(library, "system_info", lambda: "CPU : AVX2 = 1 | ")
    assert library.repacking_is_exact()
    library.repacking_is_exact.cache_clear()
