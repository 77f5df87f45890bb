"""A model with a changed vocabulary says what its source says, in other tokens."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Model, UsageError
from decoding.drafters.cross_vocabulary.vocabularies import Speller, TokenBytes
from scripts.models.change_vocabulary import Change, change_vocabulary

TEXT = b"The theatre and the other thing: 3 + 4 = 7."


def logits_by_piece(model: Model) -> tuple[list[bytes], dict[bytes, float]]:
    """The pieces of a text, and the logit of each piece after it."""
    pieces = TokenBytes.of(model.tokenizer)
    tokens = Speller(model.tokenizer, pieces).spell(TEXT)
    context = model.open(64)
    row = context.forward(tokens, 1)[0]
    spelled = [pieces.by_token[token] for token in tokens]
    return spelled, {piece: float(row[token]) for piece, token in pieces.tokens.items()}


@pytest.mark.parametrize("form", ["gpt2", "spm"])
def test_a_permuted_model_gives_each_piece_the_same_logit(
    tiny_llama: Callable[..., Path], tmp_path: Path, form: str
):
    source, target = tiny_llama(form=form), tmp_path / "permuted.gguf"
    change_vocabulary(source, target, Change(0.0))
    with closing(llamacpp.load(source)) as one, closing(llamacpp.load(target)) as other:
        assert one.tokenizer.eos != other.tokenizer.eos
        (spelled, expected), (said, found) = logits_by_piece(one), logits_by_piece(other)
    assert said == spelled
    assert found.keys() == expected.keys()
    assert np.allclose([found[piece] for piece in expected], [*expected.values()], atol=1e-4)


def test_a_share_of_the_longer_tokens_is_renamed(tiny_llama: Callable[..., Path], tmp_path: Path):
    source, target = tiny_llama(form="gpt2"), tmp_path / "changed.gguf"
    change_vocabulary(source, target, Change(0.5))
    with closing(llamacpp.load(source)) as one, closing(llamacpp.load(target)) as other:
        ours, theirs = TokenBytes.of(one.tokenizer), TokenBytes.of(other.tokenizer)
        spelled = Speller(other.tokenizer, theirs).spell(TEXT)
    gone = ours.tokens.keys() - theirs.tokens.keys()
    assert {len(piece) > 1 for piece in gone} == {True}
    assert {piece + b"~" for piece in gone} <= theirs.tokens.keys()
    assert theirs.joined(spelled) == TEXT


def test_a_byte_level_vocabulary_takes_the_form_of_sentencepiece(
    tiny_llama: Callable[..., Path], tmp_path: Path
):
    source, target = tiny_llama(form="gpt2"), tmp_path / "spm.gguf"
    change_vocabulary(source, target, Change(0.0, sentencepiece=True))
    with closing(llamacpp.load(source)) as one, closing(llamacpp.load(target)) as other:
        assert other.tokenizer.encode("he", special=False) != one.tokenizer.encode(
            "he", special=False
        )
        (spelled, expected), (said, found) = logits_by_piece(one), logits_by_piece(other)
    assert said == spelled
    assert np.allclose([found[piece] for piece in expected], [*expected.values()], atol=1e-4)
    with pytest.raises(UsageError, match="no byte-level BPE"):
        change_vocabulary(target, tmp_path / "again.gguf", Change(0.0, sentencepiece=True))
