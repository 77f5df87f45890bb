"""What is shipped and what is loaded: no more than is needed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

_ASK = """
import sys
from app.cli.main import main
sys.argv = ["specchat", "ask", "hi", "--max-tokens", "2"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
loaded = {name.partition(".")[0] for name in sys.modules}
assert "llama_cpp" in loaded
print(*sorted(loaded & {"textual", "mlx", "mlx_lm", "huggingface_hub", "gguf"}))
"""


def test_ask_loads_neither_the_screen_nor_another_engine() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ASK], input=b"", capture_output=True, check=True, env=os.environ
    )
    assert ended.stdout.splitlines()[-1] == b""


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
