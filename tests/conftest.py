"""Fixtures for every test: folders of its own, and the bundled model loaded once."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from hypothesis import settings

from app.paths import Paths
from backends.base import Model
from models.stores.available_models import demo_path
from tests.fixtures.card import has_card, pretend

pytest_plugins = [
    "tests.fixtures.costs",
    "tests.fixtures.enumeration",
    "tests.fixtures.hybrids",
    "tests.fixtures.local_hub",
    "tests.fixtures.loop_law",
    "tests.fixtures.mlx_models",
    "tests.fixtures.mlx_prediction",
    "tests.fixtures.tiny.bert",
    "tests.fixtures.tiny.kinds",
    "tests.fixtures.tiny.head_pair",  # imports the one above
    "tests.fixtures.tiny.mlx_pairs",  # imports all those above
    "tests.fixtures.tiny_models",
]

settings.register_profile("same everywhere", deadline=None, derandomize=True)
settings.load_profile("same everywhere")


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> Iterator[None]:
    """Models run on one thread unless a test asks for more, as each worker of a run has one core.

    Threads wait for each other at every step of a pass, and by spinning: of two workers with two
    threads each, the bundled model took four times the processor's time for the same tokens, a
    small one seven times.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil, "cpu_count", lambda logical=True: 1)
        yield


@pytest.fixture(scope="session")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tests before this one proved: a model they share runs in a child once."""
    return tmp_path_factory.mktemp("proofs") / "proofs.json"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, proofs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings, data and cache of this test alone; no variable of the caller's counts."""
    import os

    for name in [name for name in os.environ if name.startswith("SPECCHAT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path.with_name(f"{tmp_path.name}-home")  # tests look at all that tmp_path holds
    monkeypatch.setenv("SPECCHAT_HOME", str(folder))
    for name in ("HOME", "USERPROFILE", "HF_HOME", "LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("SPECCHAT_THREADS", "1")
    kept = folder / "cache" / "proofs.json"
    if proofs.exists():
        kept.parent.mkdir(parents=True)
        shutil.copyfile(proofs, kept)
    yield folder
    if kept.exists():
        shutil.copyfile(kept, proofs)


@pytest.fixture
def paths(home: Path) -> Paths:
    """Of this test's user."""
    return Paths.of_this_user()


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The weight file of the bundled model."""
    path = demo_path()
    assert path is not None, "the dependency group 'demo' is not installed"
    return path


@pytest.fixture(scope="session")
def llamacpp() -> ModuleType:
    """The backend of llama.cpp. What runs it asks for this, and is skipped where it is missing."""
    return pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


@pytest.fixture(scope="session")
def demo(llamacpp: ModuleType, demo_file: Path) -> Iterator[Model]:
    """The bundled model in llama.cpp. Open contexts of your own on it and close them."""
    model = llamacpp.load(demo_file)
    yield model
    model.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write what the screens look like into the snapshots, to be read and committed"
    parser.addoption("--update-snapshots", action="store_true", help=text)
    text = "run llama.cpp as if on a graphics card, whose passes of other widths round otherwise"
    parser.addoption("--card", action="store_true", help=text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (mark := item.get_closest_marker("processor")) and has_card():
        pytest.skip(f"of the processor alone: {mark.args[0]}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--card"):
        patch = pytest.MonkeyPatch()
        pretend(patch)
        config.add_cleanup(patch.undo)
