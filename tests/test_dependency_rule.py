"""The linter of imports sees what a module must not import, without being told of the module."""

import functools
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("app", "backends", "decoding", "models", "training")
LINTER = Path(sysconfig.get_path("scripts")) / "lint-imports"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with one module more."""
    folder = tmp_path_factory.mktemp("packages")
    for name in PACKAGES:
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
    graph = grimp.build_graph(*PACKAGES)
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


@functools.cache
def _imports() -> tuple[grimp.ImportGraph, Mapping[str, list[str]]]:
    """What is imported when it runs, and whose packages these are, also where one is missing."""
    graph = grimp.build_graph(
        *PACKAGES, include_external_packages=True, exclude_type_checking_imports=True
    )
    missing = {"llama_cpp": ["llama-cpp-python"], "pynvml": ["nvidia-ml-py"]}
    return graph, {**missing, **packages_distributions()}


def _undeclared(declared: set[str], within: str = "") -> set[str]:
    """Packages that are imported below a package, and that an install may lack."""
    graph, distributions = _imports()
    return {
        name
        for name in graph.modules
        if graph.is_module_squashed(name)
        and name not in sys.stdlib_module_names
        and declared.isdisjoint(_plain(each) for each in distributions.get(name, [name]))
        and any(by.startswith(within) for by in graph.find_modules_that_directly_import(name))
    }


def _plain(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return name[0].lower().replace("_", "-")


def test_every_package_that_is_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_mac = {_plain(one) for one in project["dependencies"] if "platform_machine" in one}
    always = {_plain(one) for one in project["dependencies"]} - of_mac
    always |= {_plain(one) for name in ("mcp", "train") for one in extras[name]}
    assert _undeclared(always) <= _undeclared(always, "backends.mlx")
    for name in ("mlx-cpu", "mlx-cuda"):
        assert {_plain(one) for one in extras[name]} == of_mac
    assert _undeclared(always | of_mac) == set()
    assert _undeclared(always - {"gguf"}, "backends.files") == {"gguf"}
