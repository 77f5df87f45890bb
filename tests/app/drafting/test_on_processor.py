"""A drafter that is named to run on the processor, beside a target on another device."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from app.drafting import draft_spec, drafter_building
from app.drafting.drafter_building import DrafterEnvironment
from app.engine.session_drafters import Drafting, build
from app.loading.checked_loader import CheckedLoader
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Model
from tests.fixtures.heard import hurry
from tests.fixtures.tiny.kinds import Pair

Build = Callable[..., Drafting]


@pytest.fixture
def built(
    llamacpp: ModuleType, tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Build]:
    """Builds the drafters of a spec: built(spec, room=bytes of the GPU, gpus=of their own)."""
    hurry(monkeypatch)
    with closing(llamacpp.load(tiny_llama(seed=3))) as target:

        def of(spec: str, room: int, gpus: tuple[object, ...] = ("a GPU",)) -> Drafting:
            monkeypatch.setattr(drafter_building, "separate_gpus", lambda *_: gpus)
            context, paths = TargetContext(target, target.open(128)), Paths.of_this_user()
            environment = DrafterEnvironment(
                target, context, paths, 1, None, lambda text: None, room
            )
            return build(draft_spec.parse(spec, paths), environment)

        yield of


def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The layers on the GPU of each model that is loaded from now on."""
    layers: list[int | None] = []
    load = CheckedLoader.load

    def noting(
        models: CheckedLoader, path: Path, threads: int, gpu_layers: int | None, backend: str
    ) -> Model:
        layers.append(gpu_layers)
        return load(models, path, threads, gpu_layers, backend)

    monkeypatch.setattr(CheckedLoader, "load", noting)
    return layers


def test_it_is_loaded_there_and_takes_none_of_the_memory_of_the_gpu(
    built: Build, tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, file = loaded(monkeypatch), tiny_llama(seed=3, noise=0.1)
    with closing(built(f"cpu:{file},lookup", room=1)) as drafting:
        assert drafting.missing == ""
        assert drafting.names[0] == f"cpu:{file}"
        (handle,) = (one for one in drafting.handles if one.model)
        assert handle.held_bytes > handle.taken_bytes == 0
    assert layers == [0]
    with closing(built(f"cascade(lookup,cpu:{file})", room=1)) as drafting:
        assert drafting.missing == ""


@pytest.mark.parametrize(("spec", "gpus"), [("", ("a GPU",)), ("cpu:", ())])
def test_where_both_share_memory_it_has_to_fit_there(
    built: Build,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    spec: str,
    gpus: tuple[object, ...],
) -> None:
    layers, file = loaded(monkeypatch), tiny_llama(seed=3, noise=0.1)
    with closing(built(f"{spec}{file},lookup", room=1, gpus=gpus)) as drafting:
        assert "memory" in drafting.missing
        assert drafting.names == ["lookup"]
    with closing(built(f"{spec}{file}", room=1 << 30, gpus=gpus)) as drafting:
        assert drafting.missing == ""
    assert layers == [0 if spec else None]


def test_a_head_cannot_run_elsewhere_than_its_model(built: Build, pair: Pair) -> None:
    _, head = pair("eagle3")
    with closing(built(f"cpu:{head},lookup", room=1 << 30)) as drafting:
        assert "it is a head" in drafting.missing
