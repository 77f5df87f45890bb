"""With a quantized KV cache, drafting gives the token ids of plain decoding with the same cache."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from backends.base import CacheType, Model
from decoding.draft import Drafter
from decoding.drafters.lookup import PromptLookup
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from scripts.prompts import tokenized
from tests.fixtures.replied import replied, said

GREEDY = SamplingSettings(temperature=0.0)
CONTEXT = 2048


@pytest.fixture(scope="module", params=[CacheType.Q8_0, CacheType.Q4_0])
def model(llamacpp: ModuleType, demo_file: Path, request: pytest.FixtureRequest) -> Iterator[Model]:
    with closing(llamacpp.load(demo_file, threads=1, cache_type=request.param)) as loaded:
        yield loaded


def _said(model: Model, prompt: list[int], tokens: int, drafter: Drafter | None) -> list[int]:
    limits = Limits(tokens, model.tokenizer.end_tokens)
    with closing(model.open(CONTEXT)) as context:
        return said(replied(context, prompt, GREEDY, limits, drafter))


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [32, pytest.param(96, marks=pytest.mark.nightly)])
def test_lookup_gives_plain_decodings_tokens(model: Model, tokens: int) -> None:
    for _, prompt in tokenized(model)[::4]:
        assert _said(model, prompt, tokens, PromptLookup()) == _said(model, prompt, tokens, None)
