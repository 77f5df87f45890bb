"""Pins every version in pyproject.toml: `python -m scripts.release.pin_versions [--upgrade]`.

Direct dependencies carry their version where they are named; everything below them is listed in
[tool.uv] constraint-dependencies, what builds them in build-constraint-dependencies. The lock file
uv works with is not kept: it spells out download hosts.
"""

import argparse
import re
import subprocess
import tomllib
from pathlib import Path

_PYPROJECT = Path("pyproject.toml")
_PIN = re.compile(r'"([A-Za-z0-9._-]+(?:\[[a-z,]+\])?)==([^";]+)')
_BUILD_TOOLS = ("hatchling", "scikit-build-core[pyproject]", "cmake", "ninja")


def main() -> None:
    """Rewrite the pins of the project in the current folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest of everything")
    upgrade = parser.parse_args().upgrade
    before = _PYPROJECT.read_text(encoding="utf-8")
    direct = [(name, version) for name, version in _PIN.findall(_direct_part(before))]
    try:
        _PYPROJECT.write_text(_unpinned(before, direct if upgrade else []), encoding="utf-8")
        locked = _locked_versions()
        build = _build_versions()
    except BaseException:
        _PYPROJECT.write_text(before, encoding="utf-8")
        raise
    after = before
    for name, version in direct:
        newest = {**build, **locked}[_plain(name)]
        after = after.replace(f'"{name}=={version}', f'"{name}=={newest}')
    own = {_plain(name) for name, _ in direct}
    below = {name: version for name, version in locked.items() if name not in own}
    after = _with_list(after, "constraint-dependencies", below)
    after = _with_list(after, "build-constraint-dependencies", build)
    _PYPROJECT.write_text(after, encoding="utf-8")


def _direct_part(text: str) -> str:
    return text.partition("[tool.uv]")[0]


def _unpinned(text: str, pins: list[tuple[str, str]]) -> str:
    for name, version in pins:
        text = text.replace(f'"{name}=={version}', f'"{name}')
    text = _with_list(text, "constraint-dependencies", {})
    return _with_list(text, "build-constraint-dependencies", {})


def _plain(name: str) -> str:
    return name.partition("[")[0].lower().replace("_", "-")


def _locked_versions() -> dict[str, str]:
    """Versions uv chooses for all systems and extras; what has several of them is left free."""
    subprocess.run(["uv", "lock", "--upgrade", "--quiet"], check=True)
    packages = tomllib.loads(Path("uv.lock").read_text(encoding="utf-8"))["package"]
    versions: dict[str, set[str]] = {}
    for package in packages:
        if package["name"] != "specchat":
            versions.setdefault(package["name"], set()).add(package["version"])
    return {name: found.pop() for name, found in versions.items() if len(found) == 1}


def _build_versions() -> dict[str, str]:
    command = ["uv", "pip", "compile", "-", "--universal", "--no-header", "--no-annotate", "-q"]
    wanted = "\n".join(_BUILD_TOOLS)
    done = subprocess.run(command, input=wanted, text=True, check=True, capture_output=True)
    pins = re.findall(r"^([a-z0-9.-]+)(?:\[[^\]]*\])?==([^\s;]+)", done.stdout, flags=re.MULTILINE)
    return dict(pins)


def _with_list(text: str, key: str, versions: dict[str, str]) -> str:
    lines = "".join(f'  "{name}=={version}",\n' for name, version in sorted(versions.items()))
    value = f"[\n{lines}]" if lines else "[]"
    return re.sub(rf"^{key} = \[[^\]]*\]", f"{key} = {value}", text, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
