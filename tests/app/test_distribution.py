"""What is shipped and what is loaded: no more than is needed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_LOADED = """
import sys
from app.cli.main import main
sys.argv = ["specchat", "ask", "hi", "--max-tokens", "2", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
_MLX = {"mlx", "mlx_lm", "tokenizers", "transformers"}
_SERVER = {"h11", "llguidance", "prometheus_client", "starlette", "uvicorn"}


def _loaded(*options: str) -> set[str]:
    """The packages that one answer of the command loads."""
    command = [sys.executable, "-c", _LOADED, *options]
    ended = subprocess.run(command, input="", capture_output=True, check=True, text=True)
    last = ended.stdout.splitlines()[-1].split()
    assert last[0] == "loaded"
    return set(last[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_llama_cpp_is_run_without_the_screen_and_without_mlx() -> None:
    loaded = _loaded()
    assert "llama_cpp" in loaded
    assert not loaded & {"textual", "huggingface_hub", "gguf", *_MLX, *_SERVER}


@pytest.mark.slow
def test_mlx_is_run_without_the_screen_and_without_llama_cpp(
    small_mlx: Callable[..., Path],
) -> None:
    loaded = _loaded("--model", str(small_mlx("plain")))
    assert "mlx" in loaded
    assert not loaded & {"textual", "gguf", "llama_cpp"}


@pytest.mark.slow
def test_the_wheel_holds_the_four_packages_and_what_starts_them(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    assert uv is not None, "the wheel is built with uv"
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "app",
        "backends",
        "decoding",
        "models",
        "specchat.py",
        "training",
    }
    code = [name for name in names if ".dist-info/" not in name]
    kinds = {".css", ".gguf", ".j2", ".json", ".jsonl", ".md", ".py", ".sql", ".toml"}
    assert {Path(name).suffix for name in code} == kinds


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as `uv tool install ".[demo]"` puts it on the path.

    llama.cpp is not built again: a wheel is made of what is installed here.
    """
    uv, folder = shutil.which("uv"), tmp_path_factory.mktemp("tool")
    assert uv is not None
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
    for name in ("constraint", "build-constraint"):
        (folder / name).write_text("\n".join(pins[f"{name}-dependencies"]))
    variables = {
        "UV_TOOL_DIR": str(folder / "tools"),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "UV_CONSTRAINT": str(folder / "constraint"),
        "UV_BUILD_CONSTRAINT": str(folder / "build-constraint"),
        "UV_FIND_LINKS": str(_wheel_of("llama_cpp_python", folder).parent),
    }
    ended = subprocess.run(
        [uv, "tool", "install", "--no-progress", "--python", sys.executable, ".[demo]"],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode and _is_of_network(ended.stderr):
        pytest.skip(f"the network is not there, nor all packages in the cache: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    return folder / "bin" / "specchat"


def _is_of_network(error: str) -> bool:
    return any(words in error for words in ("Failed to fetch", "error sending request", "offline"))


def _wheel_of(name: str, folder: Path) -> Path:
    """Pack an installed distribution into a wheel."""
    found = metadata.distribution(name)
    (tag,) = re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", re.MULTILINE)
    wheel = folder / f"{name}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for file in found.files or []:
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.suffix != ".pyc" and path.is_file():
                packed.write(path, file.as_posix())
    return wheel


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_the_documented_install_runs_and_answers(
    tool: Path,
    tmp_path: Path,
    home: Path,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a file that is cut off among the models, in a project that has packages of our names."""
    models = home / "data" / "models"
    models.mkdir(parents=True)
    (models / "cut.gguf").write_bytes(tiny_llama().read_bytes()[:-1000])
    for name in ("app", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('foreign')")
    monkeypatch.setenv("PYTHONPATH", ".")
    for arguments, shown in (
        (["models", "list"], "demo"),
        (["ask", "hi", "--max-tokens", "2"], ""),
        (["doctor"], "llama.cpp"),
        (["models", "info", "demo"], "llama"),
        (["bench", "--help"], "--html"),
        (["serve", "--print-config", "aider"], "8377"),
    ):
        ended = subprocess.run(
            [tool, *arguments], cwd=tmp_path, input="", capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{arguments}: {ended.stderr}"
        assert shown in ended.stdout
