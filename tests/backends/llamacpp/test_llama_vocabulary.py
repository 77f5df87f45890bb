"""Vocabularies read without the weights."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backends.base import Model, ModelError, Rollback
from backends.engines.model_loading import vocabulary

pytestmark = pytest.mark.usefixtures("llamacpp")


def test_it_is_the_one_of_the_loaded_model(demo: Model, demo_file: Path) -> None:
    ours = demo.tokenizer
    with vocabulary(demo_file) as found:
        theirs = found.tokenizer
        assert found.rollback is Rollback.ANY
        assert theirs.n_vocab == ours.n_vocab
        assert (theirs.bos, theirs.eos, theirs.end_tokens) == (ours.bos, ours.eos, ours.end_tokens)
        assert all(theirs.entry(token) == ours.entry(token) for token in range(ours.n_vocab))
        text = "Héllo 🙂, the weather"
        assert theirs.encode(text, special=False) == ours.encode(text, special=False)


def test_the_text_that_begins_a_text_is_known_where_none_is_put_before_prompts(demo: Model) -> None:
    assert (demo.tokenizer.bos, demo.tokenizer.bos_text) == (None, "<|im_start|>")


def test_a_running_state_is_known(tiny_mamba: Path) -> None:
    with vocabulary(tiny_mamba) as found:
        assert found.rollback is Rollback.NONE


def test_what_cannot_be_read(tiny_llama: Callable[..., Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(tiny_llama().read_bytes()[:200])
    for path in (tmp_path, tmp_path / "missing.gguf", damaged):
        with pytest.raises(ModelError), vocabulary(path):
            pass
