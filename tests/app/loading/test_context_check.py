"""Context sizes that cannot work are refused before anything changes."""

from dataclasses import replace

import pytest

from app.loading import context_check
from app.loading.context_check import check_new_context
from backends.base import ModelInfo, OutOfMemoryError, UsageError
from backends.files.attention import Attention, Layers
from models.metadata.memory_bill import ModelFacts
from tests.fixtures.metrics import LIVE

FACTS = ModelFacts(1, 1, 64, 64, 8192, Attention((Layers(32, 8, 128, 128),)))
INFO: ModelInfo = replace(LIVE.model, context_limit=8192)


@pytest.mark.parametrize(("n_ctx", "why"), [(10, "at least 512"), (99999999, "at most 8,192")])
def test_sizes_beyond_sense_and_training_are_refused(n_ctx: int, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_new_context(n_ctx, INFO, 4096, None)
    assert why in refused.value.why


def test_without_a_model_only_sense_is_checked() -> None:
    check_new_context(512, None, 0, None)
    with pytest.raises(UsageError):
        check_new_context(511, None, 0, None)


def test_a_context_that_does_not_fit_is_refused_and_a_smaller_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_check, "facts_for_bill", lambda _: FACTS)
    monkeypatch.setattr(context_check, "free_memory", lambda *_: 0)
    with pytest.raises(OutOfMemoryError):
        check_new_context(8192, INFO, 512, None)
    check_new_context(512, INFO, 4096, None)
