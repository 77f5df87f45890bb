"""A short campaign of damaged model files, by a seed of its own."""

from collections.abc import Callable

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from scripts.fuzzing.campaign import READ, REFUSED, Kind, Summary, readings
from scripts.fuzzing.model_files import (
    ANSWERED,
    REFUSED_BY_CHECK,
    REFUSED_BY_ENGINE,
    Engine,
    Gguf,
    Heads,
    MlxConfig,
    RecentModels,
    Safetensors,
)

SEED = 41


def summary_of(kind: Callable[[], Kind], count: int) -> Summary:
    summary = Summary()
    for found in readings(kind, count, SEED, workers=1):
        summary.add(found)
    return summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Gguf, Safetensors, MlxConfig])
def test_readers_refuse_by_name_or_read(kind: Callable[[], Kind]) -> None:
    found = summary_of(kind, 150)
    assert not found.faults
    assert min(found.outcomes[READ], found.outcomes[REFUSED]) > 10


@pytest.mark.slow
def test_no_model_file_ends_the_program() -> None:
    found = summary_of(Engine, 40)
    assert not found.faults
    outcomes = (ANSWERED, REFUSED_BY_CHECK, REFUSED_BY_ENGINE)
    assert min(found.outcomes[one] for one in outcomes) > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RecentModels, Heads])
def test_no_recent_model_or_head_ends_the_program(kind: Callable[[], Kind]) -> None:
    found = summary_of(kind, 60)
    assert not found.faults
    outcomes = (ANSWERED, REFUSED_BY_CHECK, REFUSED_BY_ENGINE)
    assert min(found.outcomes[one] for one in outcomes) > 2
