"""A head that was fitted for the bundled model is accepted on MLX as with llama.cpp."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import mlx
from backends.llamacpp.llama_model import LlamaModel
from backends.mlx.heads.mlx_head import load_head
from decoding.generation import Limits
from decoding.sampling.sampling_settings import SamplingSettings
from scripts.heads import fit_eagle3
from scripts.heads.replies import prompts
from tests.fixtures.replied import replied, said
from tests.fixtures.tiny.twins import twin

GREEDY = SamplingSettings(temperature=0.0)
COUNT, TOKENS = 2, 24
SLACK = 0.1
"""Of the first drafted tokens: texts part at near-ties, and the engines round otherwise."""


@pytest.mark.slow
def test_a_fitted_head_of_the_bundled_model_is_accepted_as_often(
    demo: LlamaModel, demo_mlx_folder: Path, tmp_path: Path
) -> None:
    """Model and head have the same weights as GGUF and as folders."""
    path = tmp_path / "head.gguf"
    for _ in fit_eagle3.fit(demo, path, count=COUNT, most=TOKENS, epochs=12, vocabulary=512):
        pass
    asked = prompts(demo, COUNT)
    theirs = fit_eagle3.acceptance(demo, path, fit_eagle3.line, asked, most=TOKENS)
    first, *_ = theirs.accepted_by_position
    tries = accepted = 0
    limits = Limits(TOKENS, demo.tokenizer.end_tokens)
    with (
        closing(mlx.load(demo_mlx_folder)) as model,
        closing(model.open(512)) as context,
        closing(load_head(twin(path, tmp_path / "head"), model, context)) as head,
    ):
        drafter = fit_eagle3.line(head.open(512), model.info.n_vocab)
        for prompt in asked:
            found = replied(context, prompt, GREEDY, limits, drafter)
            assert said(found)
            tries += sum(step.drafted > 0 for step in found)
            accepted += sum(step.accepted > 0 for step in found)
    assert first > 0.3
    assert np.isclose(accepted / tries, first, atol=SLACK)
