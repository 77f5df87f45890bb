"""A padded head drafts beside a padded model what the small one drafts beside the small one."""

from pathlib import Path

import gguf
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from decoding.drafters.draft_model import DraftModel
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from scripts.models.pad_head import pad_head
from scripts.models.pad_model import pad
from tests.fixtures.tiny.head_pair import opened
from tests.fixtures.tiny.heads import write_eagle3
from tests.fixtures.tiny.kinds import Tiny

TEXT = [3, 75, 98, 112, 130, 201, 299, 305]


def drafted(target: Path, head: Path) -> tuple[int, ...]:
    with opened(target, head) as pair:
        rows = pair.context.forward(TEXT, 1)
        history = [*TEXT, int(rows[0].argmax())]
        drafter = DraftModel("eagle3", pair.drafts, n_vocab=pair.model.info.n_vocab)
        drafter.begin(history, Sampler(SamplingSettings(temperature=0.0)))
        return drafter.propose(history, 6).tokens


@pytest.mark.usefixtures("llamacpp")
def test_it_drafts_the_same(tiny: Tiny, tmp_path: Path) -> None:
    head = write_eagle3(tmp_path / "head.gguf", own_embeddings=False)
    large, wide = tmp_path / "large.gguf", tmp_path / "wide.gguf"
    pad(tiny("llama"), large, 400_000)
    pad_head(head, large, wide, gguf.GGMLQuantizationType.F32)
    found = drafted(large, wide)
    assert len(found) == 6
    assert found == drafted(tiny("llama"), head)
