"""What is shipped and what is loaded: no more than is needed."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_ASK = """
import sys
from app.cli.main import main
sys.argv = ["specchat", "ask", "hi", "--max-tokens", "2", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"textual", "llama_cpp", "mlx", "mlx_lm", "huggingface_hub", "gguf"}))
"""


def loaded_by(*arguments: str) -> list[bytes]:
    """Of the packages that not every question needs, those that one loads."""
    ended = subprocess.run(
        [sys.executable, "-c", _ASK, *arguments],
        input=b"",
        capture_output=True,
        check=True,
        env=os.environ,
    )
    return ended.stdout.splitlines()[-1].split()


def test_ask_loads_neither_the_screen_nor_another_engine() -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    assert loaded_by() == [b"llama_cpp"]


def test_a_folder_of_mlx_is_run_without_llamacpp(small_mlx: Callable[..., Path]) -> None:
    loaded = loaded_by("--model", str(small_mlx("plain")))
    assert b"mlx_lm" in loaded
    assert b"llama_cpp" not in loaded
    assert b"textual" not in loaded


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
