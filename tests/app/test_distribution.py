"""What is shipped and what is loaded: no more than is needed."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
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


@pytest.mark.usefixtures("llamacpp")
def test_llama_cpp_is_run_without_the_screen_and_without_mlx() -> None:
    loaded = _loaded()
    assert "llama_cpp" in loaded
    assert not loaded & {"textual", "huggingface_hub", "gguf", "matplotlib", *_MLX, *_SERVER}


def test_mlx_is_run_without_the_screen_and_without_llama_cpp(
    small_mlx: Callable[..., Path],
) -> None:
    loaded = _loaded("--model", str(small_mlx("plain")))
    assert "mlx" in loaded
    assert not loaded & {"textual", "gguf", "llama_cpp", "matplotlib"}


@pytest.mark.slow
def test_the_wheel_holds_the_four_packages_and_nothing_else(tmp_path: Path) -> None:
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
    }
    code = [name for name in names if ".dist-info/" not in name]
    assert {Path(name).suffix for name in code} == {".py", ".toml", ".j2", ".css"}
