"""How many layers of a model go to a GPU where none is said: drafters too. The GPU is made up."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.loading.checked_loader import ProvenModels, fitting_layers, proof_key, split_here
from app.loading.placement import GPU_RESERVE
from app.paths import Paths
from backends.engines.backend_selection import LLAMACPP
from backends.engines.engine_facts import expected_runner
from backends.llamacpp import library
from backends.llamacpp import library as gpu_devices
from backends.llamacpp.library import Device
from backends.proof.proof_process import ProofProcess, Trial

Card = Callable[[int], None]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Put in a GPU with so many bytes beyond what stays free."""

    def put(size: int) -> None:
        device = Device(1, "CUDA", "made up", GPU_RESERVE + size, GPU_RESERVE + size)
        monkeypatch.setattr(library, "can_offload", lambda: True)
        monkeypatch.setattr(gpu_devices, "_devices", lambda: [device])

    return put


def test_without_a_gpu_nothing_is_said(demo_file: Path) -> None:
    assert split_here(demo_file, LLAMACPP) is None
    assert fitting_layers(demo_file, LLAMACPP) is None


@pytest.mark.parametrize(
    ("size", "fewest", "most"), [(10**12, None, None), (120_000_000, 1, 30), (50_000_000, 0, 0)]
)
def test_as_many_layers_as_fit(
    card: Card, demo_file: Path, size: int, fewest: int | None, most: int | None
) -> None:
    card(size)
    layers = fitting_layers(demo_file, LLAMACPP)
    if fewest is None or most is None:
        assert layers is None
        return
    assert layers is not None
    assert fewest <= layers <= most
    split = split_here(demo_file, LLAMACPP)
    assert split is not None
    assert (split.gpu_layers, split.is_whole) == (layers, False)


def test_a_model_that_is_loaded_without_a_number_gets_what_fits(
    card: Card, tiny_llama: Callable[..., Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_llama(layers=4)
    proven: list[Trial] = []

    def prove(_self: ProofProcess, trial: Trial, *_rest: object) -> None:
        proven.append(trial)

    monkeypatch.setattr(ProofProcess, "prove", prove)
    models = ProvenModels(Paths.of_this_user(), lambda _: None)
    card(0)
    model = models.load(path, 1, None)
    assert proven[0].gpu_layers == 0
    assert model.info.device.startswith("CPU")
    model.close()
    card(10**12)
    model = models.load(path, 1, None)
    assert proven[1].gpu_layers is None
    assert model.info.device == "GPU: made up"
    model.close()


def test_one_proof_holds_for_any_number_of_layers(card: Card, demo_file: Path) -> None:
    card(10**12)
    keys = {layers: proof_key(Trial(demo_file, LLAMACPP, 1, layers)) for layers in (None, 0, 5, 12)}
    assert keys[5] == keys[12]
    assert expected_runner(LLAMACPP, 1, 5).device == "GPU: made up, 5 layers"
    assert len(set(keys.values())) == 3
