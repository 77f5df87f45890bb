"""Which divisions of a processor's threads are worth measuring for two models that run at once."""

from dataclasses import replace

import pytest

from app.drafting.overlap import thread_choices
from backends.base import ModelInfo
from tests.fixtures.scripted import ScriptedModel

INFO = ScriptedModel(["a"]).info


def on(device: str, threads: int, gpu_layers: int | None = None) -> ModelInfo:
    return replace(INFO, device=device, threads=threads, gpu_layers=gpu_layers)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, ()), (2, ((1, 1),)), (4, ((2, 2), (3, 1))), (8, ((4, 4), (7, 1)))],
)
def test_on_one_processor_each_gets_some_of_its_cores(
    cores: int, expected: tuple[tuple[int, int], ...]
) -> None:
    info = on("CPU: any", cores)
    assert thread_choices(info, info, cores) == expected


def test_nobody_gets_more_threads_than_it_was_opened_with() -> None:
    assert thread_choices(on("CPU: any", 2), on("CPU: any", 1), 8) == ((2, 1),)


def test_a_device_of_its_own_leaves_nothing_to_divide() -> None:
    gpu, cpu = on("GPU", 4), on("CPU: any", 4)
    assert thread_choices(gpu, cpu, 1) == ((0, 0),)
    assert thread_choices(gpu, gpu, 1) == ((0, 0),)
    partly = on("GPU: 20 layers", 4, gpu_layers=20)
    assert thread_choices(partly, cpu, 1) == ()
