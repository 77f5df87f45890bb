"""Builds llama.cpp for NVIDIA cards with compilers from PyPI: no toolkit of the system is needed.

The libraries lie beside those of the installed binding, which stay as they are; which of the two
is loaded is decided at each start (backends.hardware.nvidia). Each step leaves what it made, so
that the build goes on after an interruption where it stopped.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from backends.base import DownloadError, ModelError
from backends.hardware.host import available_memory, physical_cores
from backends.hardware.nvidia import LIBRARIES_VARIABLE, NvidiaCards, cuda_libraries

PACKAGES = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cublas==13.0.2.14",
    "cmake==4.4.4",
    "ninja==1.13.2",
)
"""Compiler, headers and libraries of one version of CUDA, and what drives the compiler."""

DOWNLOAD_BYTES, DISK_BYTES = 650_000_000, 5_000_000_000
_CUDA, _DRIVER = 13000, "580"
_OLDEST, _OLDEST_CARDS = 75, "GeForce GTX 16 and RTX 20 or newer"
_JOB_BYTES = 2_000_000_000
"""Memory of one run of nvcc on the largest files."""

_RUNTIME = ("cudart", "cublas", "cublasLt")
_DRIVER_FUNCTIONS = (
    "cuDeviceGet", "cuDeviceGetAttribute", "cuGetErrorString", "cuMemAddressFree",
    "cuMemAddressReserve", "cuMemCreate", "cuMemGetAllocationGranularity", "cuMemMap",
    "cuMemRelease", "cuMemSetAccess", "cuMemUnmap",
)  # fmt: skip
"""What ggml calls in the driver: the linker wants the names only."""

_RECORDED_BY = (
    "    return cgraph->nodes[0];\n",
    "    return (const char *) cgraph->nodes[0] + ggml_nrows(cgraph->nodes[0]);\n",
)
"""What finds a recorded CUDA graph again, in ggml-cuda.cu and here: the number of tokens too, so
that passes of each width keep a recording instead of replacing that of another. A key that two
graphs share costs a recording, nothing else: what is replayed is compared with what is asked."""

_STEP = re.compile(r"\[(\d+)/(\d+)\] *(.*)")
_TOLD = 3
"""Last lines of a failed step that its error repeats."""

_TRIAL = "from llama_cpp import llama_cpp as api; assert api.llama_supports_gpu_offload()"

Notify = Callable[[int, int, str, float | None], None]
"""Told of progress: steps done, steps in all, what is done, and seconds left if known."""


@dataclass(frozen=True, slots=True)
class CudaBuild:
    """A build in a folder, for architectures as nvcc numbers them, several files at a time."""

    folder: Path
    architectures: tuple[str, ...]
    jobs: int

    def problems(self, cards: NvidiaCards | None, *, is_offline: bool = False) -> list[str]:
        """What stands in the way, each with what to do; empty if nothing does."""
        if not sys.platform.startswith("linux"):
            return [
                "it is made on Linux only; elsewhere install the CUDA toolkit, then set "
                "CMAKE_ARGS=-DGGML_CUDA=on and run: uv sync --reinstall-package llama-cpp-python"
            ]
        libraries = cuda_libraries()
        if libraries is None:
            return ["llama.cpp is not installed; run: uv sync"]
        found: list[str] = []
        if not self.architectures:
            found.append("no NVIDIA card or no driver was found; --architecture 90 builds for one")
        if any(int(re.sub(r"\D", "", one)) < _OLDEST for one in self.architectures):
            found.append(f"CUDA 13 has no compiler for this card; it needs {_OLDEST_CARDS}")
        if cards and cards.cuda < _CUDA:
            found.append(f"the driver is too old for CUDA 13; install version {_DRIVER} or newer")
        if is_offline and not (self._has_packages and self._source.exists()):
            found.append("what it needs is not here yet, and offline nothing is downloaded")
        if not shutil.which("c++"):
            found.append("there is no C++ compiler; run: sudo apt install g++ (or dnf, gcc-c++)")
        if not os.access(libraries.parent, os.W_OK):
            found.append(f"{libraries.parent} cannot be written to")
        if _free_bytes(self.folder) < DISK_BYTES and not self._source.exists():
            found.append(f"{self.folder} has too little space; {DISK_BYTES / 1e9:.0f} GB are used")
        return found

    def run(self, notify: Notify, target: str = "install") -> Path:
        """Make the build, or a single target of it; returns the folder of the libraries.

        Raises:
            DownloadError: a package could not be downloaded.
            ModelError: a step failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._download(notify)
        toolkit, bin_folder = self._toolkit(notify), self.folder / "kit" / "bin"
        build, made = self._source / "build", self._source / "made"
        flags = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": made / "rest",  # what is not the binding's
            "CMAKE_MAKE_PROGRAM": bin_folder / "ninja",
            "CMAKE_C_FLAGS": "-U__AMX_INT8__",  # as pyproject.toml builds for the processor
            "CMAKE_CXX_FLAGS": "-U__AMX_INT8__",
            "CMAKE_CUDA_ARCHITECTURES": ";".join(f"{one}-real" for one in self.architectures),
            "CMAKE_CUDA_COMPILER": toolkit / "bin" / "nvcc",
            "CUDAToolkit_ROOT": toolkit,
            "GGML_CUDA": "ON",
            "GGML_RPC": "ON",
            "SKBUILD_PLATLIB_DIR": made,
        }
        environment = {"CUDA_PATH": str(toolkit), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        notify(0, 0, "configuring", None)
        options = [f"-D{name}={value}" for name, value in flags.items()]
        cmake = [bin_folder / "cmake", "-S", self._source, "-B", build, "-G", "Ninja", *options]
        self._call(cmake, notify, environment)
        ninja = [bin_folder / "ninja", "-C", build, "-j", self.jobs, target]
        self._call(ninja, notify, environment)
        libraries = made / "llama_cpp" / "lib"
        if target == "install":
            for name in _RUNTIME:
                shutil.copy2(toolkit / "lib" / f"lib{name}.so.13", libraries)
        return libraries

    def _download(self, notify: Notify) -> None:
        """Packages and the binding's sources, unless they are here."""
        python = self.folder / "kit" / "bin" / "python"
        if not python.exists():
            self._call([sys.executable, "-m", "venv", self.folder / "kit"], notify)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        if not self._has_packages:
            notify(0, 0, f"downloading CUDA ({DOWNLOAD_BYTES / 1e6:.0f} MB)", None)
            self._call([*pip, "install", *PACKAGES], notify)
            self._stamp.write_text("\n".join(PACKAGES))
        if not self._source.exists():
            notify(0, 0, "downloading llama.cpp's sources", None)
            for earlier in self.folder.glob("llama_cpp_python-*/"):
                shutil.rmtree(earlier)
            archive = self.folder / f"{self._source.name}.tar.gz"
            package = f"llama-cpp-python=={metadata.version('llama-cpp-python')}"
            only_source = ["--no-deps", "--no-binary", "llama-cpp-python"]
            self._call([*pip, "download", *only_source, package, "-d", self.folder], notify)
            unpacked = self.folder / "unpacked"
            with tarfile.open(archive) as opened:
                opened.extractall(unpacked, filter="data")
            (unpacked / self._source.name).rename(self._source)
        self._keep_recordings()

    def _keep_recordings(self) -> None:
        """Have the engine keep a recording of each width, where its source is as we know it."""
        source = self._source / "vendor/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu"
        if source.exists() and _RECORDED_BY[0] in (code := source.read_text("utf-8")):
            source.write_text(code.replace(*_RECORDED_BY), "utf-8")

    @property
    def _stamp(self) -> Path:
        return self.folder / "kit" / "packages"

    @property
    def _has_packages(self) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == "\n".join(PACKAGES)

    @property
    def _source(self) -> Path:
        """Of the installed version of the binding; what is built of it is in there too."""
        return self.folder / f"llama_cpp_python-{metadata.version('llama-cpp-python')}"

    def _toolkit(self, notify: Notify) -> Path:
        """The packages' common folder, completed to what CMake knows as a toolkit."""
        root = next((self.folder / "kit" / "lib").glob("python3.*/site-packages/nvidia/cu13"))
        for name in _RUNTIME:
            link = root / "lib" / f"lib{name}.so"
            if not link.exists():
                link.symlink_to(f"lib{name}.so.13")
        if not (root / "lib64").exists():
            (root / "lib64").symlink_to("lib")
        driver = root / "lib" / "stubs" / "libcuda.so"
        if not driver.exists():
            driver.parent.mkdir(exist_ok=True)
            code = "".join(f"int {name}(void){{return 100;}}" for name in _DRIVER_FUNCTIONS)
            (driver.parent / "cuda.c").write_text(code)
            shared = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
            self._call(["c++", *shared, driver.parent / "cuda.c", "-o", driver], notify)
        return root

    def _call(
        self,
        command: Sequence[object],
        notify: Notify,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run a step, its output in a log; passes on what Ninja tells of its progress."""
        words, log, lines = list(map(str, command)), self.folder / "build.log", list[str]()
        begun = time.monotonic()
        started = subprocess.Popen(
            words,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        with log.open("a", encoding="utf-8") as kept, started as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    kept.write(line)
                    lines.append(line.strip())
                    if step := _STEP.match(line):
                        done, steps = int(step[1]), int(step[2])
                        left = (time.monotonic() - begun) * (steps - done) / max(done, 1)
                        notify(done, steps, step[3].rpartition("/")[2] or step[3], left)
            except BaseException:
                process.terminate()  # Ninja then removes what is half written
                raise
        if process.returncode:
            _fail(words, lines, log)


def install(made: Path) -> Path:
    """Put libraries that were made beside those of the binding; returns where they are.

    Raises:
        ModelError: they do not run here.
    """
    place = cuda_libraries()
    assert place is not None
    environment = {**os.environ, LIBRARIES_VARIABLE: str(made)}
    trial = [sys.executable, "-c", _TRIAL]
    tried = subprocess.run(trial, env=environment, capture_output=True, text=True, check=False)
    if tried.returncode:
        why = tried.stderr.strip().rpartition("\n")[2] or f"it ended with {tried.returncode}"
        remedy = "What was in use stays so. `nvidia-smi` tells whether the driver works."
        raise ModelError("the CUDA build does not run here", why, remedy)
    new = place.with_name(f"{place.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(made, new, symlinks=True)
    remove()
    new.rename(place)
    return place


def remove() -> bool:
    """Go back to the processor's build: remove that for CUDA, of whatever version; False if none.

    Programs that have loaded it keep it.
    """
    place = cuda_libraries()
    found = list(place.parent.glob("lib-cuda-*[0-9]")) if place else []
    for one in found:
        shutil.rmtree(one)
    return bool(found)


def usual_jobs() -> int:
    """Files to compile at a time: one a core, as far as memory holds them."""
    return max(1, min(physical_cores(), available_memory() // _JOB_BYTES))


def _fail(words: list[str], lines: list[str], log: Path) -> NoReturn:
    """Raise the error of a failed step, with the lines that name a cause, else the last."""
    telling = [line for line in lines if re.search(r"\b(error|ERROR|fatal)\b", line)] or lines
    why = "; ".join(telling[-_TOLD:]) or "it said nothing"
    remedy = f"The same command goes on where it stopped. All that was said is in {log}."
    if "pip" in words:
        raise DownloadError("a package of the CUDA build could not be downloaded", why, remedy)
    if "venv" in words:
        remedy = "On Debian and Ubuntu: sudo apt install python3-venv"
    raise ModelError(f"{Path(words[0]).name} failed", why, remedy)


def _free_bytes(folder: Path) -> int:
    """Space of the disk that a folder, which may not exist yet, is on."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    return shutil.disk_usage(existing).free
