"""The CUDA build of llama.cpp: what it needs, how it goes on, and which build is loaded then."""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends.base import DownloadError, ModelError
from backends.engines import cuda_build
from backends.engines.cuda_build import PACKAGES, CudaBuild, install, remove
from backends.engines.engine_facts import idle_card
from backends.hardware import nvidia
from backends.hardware.nvidia import LIBRARIES_VARIABLE, NvidiaCards, nvidia_cards

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="built on Linux only")
VERSION = metadata.version("llama-cpp-python")
CARDS = NvidiaCards(("NVIDIA H100",), ("90",), 13000)
PIP = """#!/bin/sh
echo "$*" >> {folder}/pip.calls
[ "$4" = online ] || [ -e {folder}/online ] || {{ echo "ERROR: no route to host"; exit 1; }}
"""
NINJA = """#!/bin/sh
echo "[1/3] Building CUDA object a/b/scale.cu.o"
[ -e {folder}/room ] || {{ echo "FAILED: scale.cu.o"; echo "fatal error: no space left"; exit 1; }}
echo "[2/3] Linking CXX shared library bin/libggml-cuda.so"
mkdir -p {source}/made/llama_cpp/lib && touch {source}/made/llama_cpp/lib/libggml-cuda.so
echo "[3/3] Install the project..."
"""


@pytest.fixture
def build(tmp_path: Path) -> CudaBuild:
    """A build whose tools are scripts: one package server that fails, one compiler that does."""
    kit, source = tmp_path / "kit", tmp_path / f"llama_cpp_python-{VERSION}"
    source.mkdir()
    (kit / "bin").mkdir(parents=True)
    for name, script in {"python": PIP, "cmake": "#!/bin/sh\n", "ninja": NINJA}.items():
        (kit / "bin" / name).write_text(script.format(folder=tmp_path, source=source))
        (kit / "bin" / name).chmod(0o755)
    libraries = kit / "lib" / "python3.11" / "site-packages" / "nvidia" / "cu13" / "lib"
    (libraries / "stubs").mkdir(parents=True)
    (libraries / "stubs" / "libcuda.so").touch()
    for name in ("cudart", "cublas", "cublasLt"):
        (libraries / f"lib{name}.so.13").touch()
    return CudaBuild(tmp_path, ("90",), 1)


@on_linux
def test_a_build_that_stopped_goes_on_where_it_was(build: CudaBuild) -> None:
    told: list[tuple[int, int, str]] = []

    def notify(done: int, steps: int, what: str, left: float | None) -> None:
        assert (left is None) is (steps == 0)
        told.append((done, steps, what))

    with pytest.raises(DownloadError, match=r"no route to host.*\n.*goes on where it stopped"):
        build.run(notify)
    (build.folder / "online").touch()
    with pytest.raises(ModelError, match="ninja failed: fatal error: no space left"):
        build.run(notify)
    (build.folder / "room").touch()
    made = build.run(notify)
    assert not [one for one in build.problems(CARDS, is_offline=True) if "offline" in one]
    assert sorted(file.name for file in made.iterdir()) == [
        "libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13", "libggml-cuda.so",
    ]  # fmt: skip
    assert told[-3:] == [
        (1, 3, "scale.cu.o"), (2, 3, "libggml-cuda.so"), (3, 3, "Install the project..."),
    ]  # fmt: skip
    calls = (build.folder / "pip.calls").read_text().splitlines()
    assert len(calls) == 2, "packages that are here are not fetched again"
    assert calls[-1].endswith(" ".join(PACKAGES))


@on_linux
def test_a_recording_of_each_width_is_kept_where_the_source_is_as_it_is_known(
    build: CudaBuild,
) -> None:
    for name in ("online", "room"):
        (build.folder / name).touch()
    folder = build.folder / f"llama_cpp_python-{VERSION}" / "vendor/llama.cpp/ggml/src/ggml-cuda"
    folder.mkdir(parents=True)
    source, before = folder / "ggml-cuda.cu", "key() {\n    return cgraph->nodes[0];\n}\n"
    for code, known in ((before, True), ("other();\n", False)):
        source.write_text(code)
        for _ in range(2):
            build.run(lambda *_: None)
            assert source.read_text().count("ggml_nrows(cgraph->nodes[0])") == known
    assert source.read_text() == "other();\n"


@on_linux
def test_what_is_missing_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_build, "cuda_libraries", lambda: tmp_path / "lib-cuda-1")
    monkeypatch.setattr(cuda_build, "_free_bytes", lambda _: cuda_build.DISK_BYTES)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/c++")
    ready = CudaBuild(tmp_path, ("90",), 1)
    assert ready.problems(CARDS) == ready.problems(None) == []
    assert "offline" in ready.problems(CARDS, is_offline=True)[0]
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(cuda_build, "_free_bytes", lambda _: cuda_build.DISK_BYTES - 1)
    old = CudaBuild(tmp_path, ("61",), 1).problems(NvidiaCards(("Tesla P40",), ("61",), 12080))
    assert len(old) == 4
    for said in ("RTX 20 or newer", "version 580", "apt install g++", "5 GB"):
        assert said in " ".join(old)
    assert "--architecture" in CudaBuild(tmp_path, (), 1).problems(None)[0]
    monkeypatch.setattr(cuda_build, "cuda_libraries", lambda: None)
    assert "uv sync" in ready.problems(CARDS)[0]
    monkeypatch.setattr(sys, "platform", "win32")
    assert "CMAKE_ARGS=-DGGML_CUDA=on" in ready.problems(CARDS)[0]


def test_libraries_are_used_once_they_run_and_until_they_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, made = tmp_path / "lib-cuda-2", tmp_path / "made"
    (tmp_path / "lib-cuda-1").mkdir()  # of an earlier version of the binding
    made.mkdir()
    (made / "libggml-cuda.so").touch()
    for module in (nvidia, cuda_build):
        monkeypatch.setattr(module, "cuda_libraries", lambda: place)
    monkeypatch.setattr(cuda_build, "_TRIAL", "raise OSError('no device')")
    with pytest.raises(ModelError, match="does not run here: OSError: no device"):
        install(made)
    assert not place.exists()
    trial = f"import os; assert os.environ[{LIBRARIES_VARIABLE!r}] == {str(made)!r}"
    monkeypatch.setattr(cuda_build, "_TRIAL", trial)
    for _ in range(2):  # also over one that is there
        assert install(made) == place
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lib-cuda-2", "made"]

    assert (remove(), remove()) == (True, False)


@on_linux
@pytest.mark.parametrize("damage", ["", "damaged", "missing"])
def test_the_build_for_cuda_is_used_where_it_can_be_loaded(tmp_path: Path, damage: str) -> None:
    import llama_cpp

    usual, build = Path(llama_cpp.__file__).parent / "lib", tmp_path / "libraries"
    shutil.copytree(usual, build)
    needed = build / "libggml.so.0"  # as it needs libggml-cuda, and that the driver
    if damage:
        needed.unlink()
    if damage == "damaged":
        needed.write_text("no library")
    code = f"""from pathlib import Path
    from backends.hardware import nvidia
    nvidia.cuda_libraries = lambda: Path({str(build)!r})
    from backends.llamacpp import library
    from backends.engines.engine_facts import describe_engines
    library.start(); print(library.shared_library("ggml"), library.api._lib)
    print(describe_engines().advice)"""
    shown = subprocess.run(
        [sys.executable, "-c", "\n".join(map(str.strip, code.splitlines()))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.count(f"{build if not damage else usual}{os.sep}libl") == 1
    assert shown.count(f"{build if not damage else usual}{os.sep}libggml.so.0") == 1
    assert ("the build for CUDA cannot be loaded (" in shown) is bool(damage)
    assert ("specchat build cuda" in shown) is bool(damage)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two NVIDIA cards, as their driver tells of them."""
    nvml = ModuleType("pynvml")
    names, capabilities = ["NVIDIA H100", "NVIDIA L4"], [(9, 0), (8, 9)]
    told = {
        "NVMLError": type("NVMLError", (Exception,), {}),
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": names.__getitem__,
        "nvmlDeviceGetCudaComputeCapability": capabilities.__getitem__,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13010,
    }
    for name, value in told.items():
        setattr(nvml, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


@pytest.mark.usefixtures("card")
def test_a_card_that_the_build_cannot_use_lies_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvidia_cards() == NvidiaCards(("NVIDIA H100", "NVIDIA L4"), ("89", "90"), 13010)
    monkeypatch.setattr("backends.llamacpp.library.can_offload", lambda: False)
    assert idle_card() == "NVIDIA H100"
    monkeypatch.setattr("backends.llamacpp.library.can_offload", lambda: True)
    assert idle_card() is None


@on_linux
@pytest.mark.nightly
def test_a_file_of_kernels_is_compiled_with_what_pypi_has(tmp_path: Path) -> None:
    """Downloads 650 MB and compiles one of the files that the whole build has."""
    build = CudaBuild(tmp_path, ("90",), 1)
    kernel = "vendor/llama.cpp/ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/scale.cu.o"
    build.run(lambda *_: None, kernel)
    assert (next(tmp_path.glob("llama*/build")) / kernel).stat().st_size > 1000
