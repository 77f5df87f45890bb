"""A head that was fitted for the bundled model drafts on MLX what it drafts with llama.cpp."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import mlx
from backends.llamacpp.model import LlamaModel
from backends.mlx.heads.head import load_head
from decoding.generation import Limits
from decoding.sampling.settings import SamplingSettings
from scripts.heads import fit_eagle3
from scripts.heads.fit_eagle3 import prompts
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.head_rows import read
from tests.fixtures.tiny.twins import twin

GREEDY = SamplingSettings(temperature=0.0)
COUNT, TOKENS = 2, 24
SLACK = 0.1
"""Of the first drafted tokens: the engines round otherwise."""


@pytest.mark.nightly
def test_a_fitted_head_of_the_bundled_model_is_accepted_as_often(
    demo: LlamaModel, demo_mlx_folder: Path, tmp_path: Path
) -> None:
    """Model and head have the same weights as GGUF and as folders.

    Both draft along llama.cpp's replies: MLX's own part from them at the first near-tie.
    """
    path = tmp_path / "head.gguf"
    for _ in fit_eagle3.fit(demo, path, count=COUNT, most=TOKENS, epochs=12, vocabulary=512):
        pass
    asked = prompts(demo, COUNT)
    theirs = fit_eagle3.acceptance(demo, path, fit_eagle3.line, asked, most=TOKENS)
    first, *_ = theirs.accepted_by_position
    limits = Limits(TOKENS, demo.tokenizer.end_tokens)
    with closing(demo.open(512)) as plain:
        heard = [said(replied(plain, prompt, GREEDY, limits, None)) for prompt in asked]
    tries = accepted = 0
    with (
        closing(mlx.load(demo_mlx_folder)) as model,
        closing(model.open(512)) as context,
        closing(load_head(twin(path, tmp_path / "head"), model, context)) as head,
    ):
        opened = head.open(512)
        for prompt, reply in zip(asked, heard, strict=True):
            text = [*prompt, *reply]
            context.truncate(0)
            context.forward(prompt, 0)
            for end in range(len(prompt) + 1, len(text)):
                tries += 1
                accepted += int(read(opened, text[:end]).argmax()) == text[end]
                context.forward([text[end - 1]], 0)
    assert first > 0.3
    assert np.isclose(accepted / tries, first, atol=SLACK)
