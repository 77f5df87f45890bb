"""Drafters of a mixture of experts: the same file, with fewer of them for a token."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Logits, Model
from models.metadata.identity import fingerprint

TOKENS = list(range(40, 60))


def logits(model: Model) -> Logits:
    with closing(model.open(64)) as context:
        return context.forward(TOKENS, 4).copy()


@pytest.fixture
def file(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama(layers=3, experts=(4, 2))


def test_fewer_experts_are_those_of_a_file_that_says_so(
    file: Path, tiny_llama: Callable[..., Path]
) -> None:
    with (
        closing(llamacpp.load(file, threads=1)) as whole,
        closing(llamacpp.load(file, threads=1, experts=1)) as fewer,
        closing(llamacpp.load(tiny_llama(layers=3, experts=(4, 1)), threads=1)) as reference,
    ):
        np.testing.assert_array_equal(logits(fewer), logits(reference))
        assert not np.array_equal(logits(fewer), logits(whole))
        assert [one.info.active_experts for one in (whole, fewer, reference)] == [2, 1, 1]
        assert fewer.info.bytes_read_per_token == reference.info.bytes_read_per_token
        assert fewer.info.bytes_read_per_token < whole.info.bytes_read_per_token


def test_what_is_learned_of_it_is_not_taken_for_the_file_s(file: Path) -> None:
    with (
        closing(llamacpp.load(file, threads=1)) as whole,
        closing(llamacpp.load(file, threads=1, experts=1)) as fewer,
    ):
        names = {fingerprint(one.info.path, one.info.variant) for one in (whole, fewer)}
    assert len(names) == 2


def test_a_model_without_experts_says_so(tiny_llama: Callable[..., Path]) -> None:
    with closing(llamacpp.load(tiny_llama(), threads=1)) as model:
        assert model.info.active_experts == 0
