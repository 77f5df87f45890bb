"""Layers cut out of files whose layers are of several kinds, by number: equivalent, or refused."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from typing import TYPE_CHECKING

from backends import llamacpp
from backends.base import DraftUnavailableError
from backends.files.gguf_header import GgufHeader, read_header
from backends.llamacpp.requantize import requantize
from models.self_draft import recipe as layer_cuts
from models.self_draft.recipe import Recipe, can_cut
from models.self_draft.self_draft_store import CandidateFiles, SelfDrafts

if TYPE_CHECKING:
    from backends.files.gguf_header import Scalar

TinyLlama = Callable[..., Path]
TEXT = [40 + 7 * place % 60 for place in range(24)]

PERIOD = 4
KEEPING = [(0, 1, 2, 3), (1, 2, 3, 4), (5, 6, 7, 8), (9,), (8, 9), (2, 3, 4, 5, 9)]
"""Of ten layers: four in a row from anywhere, and any of the last."""

SHIFTING = [(0,), (3,), (4, 5), (2, 3, 4), (1, 2, 3, 4, 6), (0, 4, 5, 6)]


def said(path: Path) -> np.ndarray:
    """The logits after each token of a text."""
    with closing(llamacpp.load(path)) as model, closing(model.open(64)) as context:
        return np.array(context.forward(TEXT, len(TEXT)))


@pytest.mark.parametrize("skipped", KEEPING)
def test_a_cut_that_keeps_the_pattern_says_what_the_model_says_without_these_layers(
    skipped: tuple[int, ...], tiny_llama: TinyLlama, tmp_path: Path
) -> None:
    path = tiny_llama(layers=10, architecture="smollm3", idle=skipped)
    with closing(llamacpp.load(path)) as model:
        store = SelfDrafts(tmp_path)
        cut = store.get(model.info, Recipe(None, skipped), lambda done, total: None)
    assert read_header(cut).integer("block_count") == 10 - len(skipped)
    np.testing.assert_allclose(said(cut), said(path), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("skipped", SHIFTING)
def test_a_cut_that_shifts_the_pattern_is_refused_before_anything_is_made(
    skipped: tuple[int, ...], tiny_llama: TinyLlama, tmp_path: Path
) -> None:
    path = tiny_llama(layers=10, architecture="smollm3", idle=skipped)
    shifted, folder = tmp_path / "shifted.gguf", tmp_path / "self-drafts"
    list(requantize(path, shifted, None, skipped))
    assert np.abs(said(shifted) - said(path)).max() > 0.01  # it would be another model

    with closing(llamacpp.load(path)) as model:
        recipe, store = Recipe(None, skipped), SelfDrafts(folder)
        with pytest.raises(DraftUnavailableError, match="one of 4 layers is of another kind"):
            store.get(model.info, recipe, lambda done, total: None)
        files = CandidateFiles(store, model.info, lambda _: lambda done, total: None)
        with closing(files), pytest.raises(DraftUnavailableError), files.made(recipe):
            pass
    assert not folder.exists()


@pytest.mark.parametrize("skipped", [(0,), (1, 2), (3, 6, 9)])
def test_layers_that_are_alike_can_be_cut_anywhere(
    skipped: Sequence[int], tiny_llama: TinyLlama
) -> None:
    with closing(llamacpp.load(tiny_llama(layers=10))) as model:
        assert can_cut(model.info, skipped)


def told(header: GgufHeader, monkeypatch: pytest.MonkeyPatch, path: Path, *skipped: int) -> str:
    """Why layers cannot be cut from a file with such a header."""
    monkeypatch.setattr(layer_cuts, "read_header", lambda _: header)
    with closing(llamacpp.load(path)) as model:
        info = dataclasses.replace(model.info, n_layers=header.integer("block_count"))
    with pytest.raises(DraftUnavailableError, match="cannot skip") as refused:
        layer_cuts.require_cut(info, skipped)
    return refused.value.why


@pytest.mark.parametrize(
    ("architecture", "facts", "arrays", "skipped", "why"),
    [
        ("gemma3", {"block_count": 26}, {}, (0, 1), "one of 6 layers"),
        ("gemma3", {"block_count": 26, "attention.sliding_window_pattern": 4}, {}, (0, 1), "of 4"),
        ("gemma3", {"block_count": 62}, {}, range(6), "by its number of layers"),
        ("gemma2", {"block_count": 48}, {}, (0, 1), "for another model"),
        ("gpt-oss", {"block_count": 24}, {}, (3,), "one of 2 layers"),
        ("cohere2", {"block_count": 32}, {}, (3,), "one of 4 layers"),
        ("llama4", {"block_count": 48}, {}, range(4), "not known to be alike"),
        ("qwen35", {"block_count": 24}, {}, range(4), "not known to be alike"),
        ("deepseek", {"block_count": 8, "leading_dense_block_count": 1}, {}, (0, 3), "first 1"),
        (
            "llama",
            {"block_count": 8},
            {"feed_forward_length": 8},
            (3,),
            "lists feed_forward_length",
        ),
        ("qwen3", {"block_count": 8, "nextn_predict_layers": 1}, {}, (3,), "after the last"),
    ],
)
def test_what_a_file_tells_of_its_layers_counts(
    architecture: str,
    facts: dict[str, int],
    arrays: dict[str, int],
    skipped: Sequence[int],
    why: str,
    tiny_llama: TinyLlama,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata: dict[str, Scalar] = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in facts.items()}
    lengths = {f"{architecture}.{key}": length for key, length in arrays.items()}
    header = GgufHeader(metadata, lengths, ())
    assert why in told(header, monkeypatch, tiny_llama(layers=1), *skipped)


def test_every_architecture_listed_is_one_of_llama_cpp() -> None:
    names = set(gguf.MODEL_ARCH_NAMES.values())
    listed = layer_cuts._ALIKE | set(layer_cuts._PATTERNS)  # pyright: ignore
    assert listed - names == set()
