"""`doctor`, `path`, `--version` and `--help`."""

import json
import struct
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.ahead.piece_reader import AheadTime
from app.cli.commands.doctor import _build, _reading_ahead, _versions
from app.cli.options import ANSWER, SESSION
from app.paths import Paths
from app.settings.catalogue import BY_NAME
from backends.engines.engine_facts import describe_engines
from backends.hardware.host import Machine
from tests.app.conftest import Specchat


@pytest.mark.usefixtures("llamacpp")
def test_doctor_tells_what_runs_here(specchat: Specchat) -> None:
    ended = specchat("doctor")
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = {line[:15].strip(): line[15:].strip() for line in ended.stdout.splitlines()}
    assert rows["backend"].startswith("llamacpp (")
    assert "demo" in rows["models"]
    assert f"llama-cpp-python {metadata.version('llama-cpp-python')}" in rows["versions"]
    assert all(rows.values())


@pytest.mark.usefixtures("llamacpp")
def test_doctor_json_says_the_same(specchat: Specchat, home: Path, demo_file: Path) -> None:
    folder = home / "data" / "models"
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    (folder / "damaged.gguf").touch()
    facts = json.loads(specchat("doctor", "--json").stdout)
    assert facts["schema"] == 1
    assert facts["backend"] == "llamacpp"
    by_name = {engine["backend"]: engine for engine in facts["engines"]}
    assert sorted(by_name) == ["llamacpp", "mlx"]
    for name, package in (("llamacpp", "llama_cpp"), ("mlx", "mlx_lm")):
        assert bool(by_name[name]["problem"]) == (find_spec(package) is None)
    assert facts["demo_model"] == str(demo_file)
    assert facts["models"] == ["demo", "tiny"]
    assert 0 < facts["device"]["available_memory_bytes"] <= facts["device"]["memory_bytes"]
    assert facts["device"]["bandwidth_bytes_per_second"] > 1e8
    assert facts["device"]["bandwidth_source"].startswith("measured: ")


@pytest.mark.usefixtures("llamacpp")
def test_doctor_tells_what_reading_ahead_cost(specchat: Specchat) -> None:
    assert _reading_ahead({"used_seconds": 0.0, "wasted_seconds": 0.0}) == ""
    AheadTime(95.0, 0.25).keep(Paths.of_this_user())
    AheadTime(30.0, 1.0).keep(Paths.of_this_user())
    spent = json.loads(specchat("doctor", "--json").stdout)["reading_ahead"]
    assert spent == {"used_seconds": 125.0, "wasted_seconds": 1.25}
    assert _reading_ahead(spent) == "2 min 5 s of processor time used, 1.2 s wasted"


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("mlx 0.30", "mlx 0.30"),
        ("llama 1 CPU : SSE3 = 1 | AMX = 0 | FMA = 1", "llama 1 CPU: SSE3, FMA"),
        ("llama 1 GPU : ARCHS = 750,800 | CPU : AVX = 1", "llama 1 GPU: ARCHS 750,800, CPU: AVX"),
    ],
)
def test_of_a_build_what_is_on_is_named(build: str, words: str) -> None:
    assert _build(build) == words


@pytest.mark.parametrize(
    ("is_apple", "words"), [(False, "numpy missing"), (True, "numpy missing, mlx missing")]
)
def test_mlx_is_missing_on_apple_silicon_alone(
    monkeypatch: pytest.MonkeyPatch, is_apple: bool, words: str
) -> None:
    machine = Machine(is_apple_silicon=is_apple, has_llamacpp=True, has_mlx=False)
    monkeypatch.setattr("app.cli.commands.doctor.this_machine", lambda: machine)
    assert _versions({"numpy": None, "mlx": None}) == words
    assert ("Apple Silicon" in describe_engines(machine).other.problem) is not is_apple


@pytest.mark.parametrize(
    ("kind", "folder"),
    [("config", "config"), ("data", "data"), ("cache", "cache"), ("models", "data/models")],
)
def test_path_prints_a_folder_and_makes_none(
    specchat: Specchat, bare_home: Path, kind: str, folder: str
) -> None:
    ended = specchat("path", kind)
    assert (ended.returncode, ended.stdout) == (0, f"{bare_home / folder}\n")
    assert not bare_home.exists()


def test_version(specchat: Specchat) -> None:
    ended = specchat("--version")
    assert (ended.returncode, ended.stdout) == (0, f"specchat {metadata.version('specchat')}\n")


@pytest.mark.parametrize("command", [(), ("ask",), ("chat",)])
def test_help_names_the_variable_of_every_option(
    specchat: Specchat, command: tuple[str, ...]
) -> None:
    ended = specchat(*command, "--help")
    words = "".join(ended.stdout.split())
    assert ended.returncode == 0
    for name in {one.name for one in (*SESSION, *(ANSWER if command else ()))} & BY_NAME.keys():
        assert f"--{name.replace('_', '-')}" in words
        assert f"SPECCHAT_{name.upper()}" in words
