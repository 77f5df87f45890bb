"""The linter of imports sees what a module must not import, without being told of the module."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
LINTER = Path(sysconfig.get_path("scripts")) / "lint-imports"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four packages with one module more."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("app", "backends", "decoding", "models"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    forbidden = ("textual.app", "llama_cpp", "mlx.core", "huggingface_hub")
    lines = "".join(f"    import {name}\n" for name in forbidden)
    (folder / "app" / "added.py").write_text(f"def late() -> None:\n{lines}")
    return folder


@pytest.fixture(scope="module")
def found(packages: Path) -> str:
    linter = [str(LINTER), "--no-cache"]
    ended = subprocess.run(linter, cwd=packages, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", ["textual", "llama_cpp", "mlx", "huggingface_hub"])
def test_an_import_where_it_does_not_belong_is_found(name: str, found: str) -> None:
    assert f"app.added -> {name}" in found


def test_nothing_else_is_found(found: str) -> None:
    assert " kept, 4 broken." in found


def test_decoding_imports_the_contract_of_backends_and_nothing_else_of_ours() -> None:
    graph = grimp.build_graph("app", "backends", "decoding", "models")
    imported = {
        name
        for module in graph.modules
        if module.startswith("decoding")
        for name in graph.find_modules_directly_imported_by(module)
    }
    allowed = ("decoding", "backends.base")
    assert not {
        name for name in imported if not f"{name}.".startswith(tuple(f"{a}." for a in allowed))
    }


def test_no_folder_has_many_more_than_fifteen_modules() -> None:
    for package in ("app", "backends", "decoding", "models", "scripts"):
        for folder in (ROOT / package).rglob("**/"):
            modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
            assert len(modules) <= 16, folder
