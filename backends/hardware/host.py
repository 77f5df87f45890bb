"""Processor, memory and GPUs of this machine."""

import functools
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import psutil


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU and its memory in bytes, None where the engine does not tell.

    is_unified: whether it shares the memory of the machine.
    """

    name: str
    free_bytes: int | None
    total_bytes: int | None
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """Kind of processor, and the installed backends, whether they start or not."""

    is_apple_silicon: bool
    has_llamacpp: bool
    has_mlx: bool


def this_machine() -> Machine:
    """Facts of the present machine, without importing an engine."""
    return Machine(
        is_apple_silicon=sys.platform == "darwin" and platform.machine() == "arm64",
        has_llamacpp=_is_installed("llama_cpp"),
        has_mlx=_is_installed("mlx") and _is_installed("mlx_lm"),
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a module blocked in sys.modules has no spec
        return False


def physical_cores() -> int:
    count = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if sys.platform == "linux":
        count = min(count, len(os.sched_getaffinity(0)))
    return max(count, 1)


def available_memory() -> int:
    """Bytes this process can still allocate: free on the machine, or in its container if less.

    File cache that can be dropped counts as free.
    """
    free, room = psutil.virtual_memory().available, cgroup_room()
    return free if room is None else min(free, room)


def total_memory() -> int:
    return psutil.virtual_memory().total


def memory_limit() -> int:
    """Bytes this process may hold at all: those of the machine, or of its container if fewer."""
    total, limit = total_memory(), cgroup_limit()
    return total if limit is None else min(total, limit)


def peak_memory_bytes() -> int | None:
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux inherits ru_maxrss from the program that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


@functools.cache
def processor_name() -> str:
    if sys.platform == "darwin":
        return _name_on_a_mac() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _name_on_a_mac() -> str:
    """Name such as "Apple M4 Pro", by which speeds can be compared; empty if it is not told."""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip()


# Memory that the control groups of this process leave it (Linux: containers, services, slices).
# Sources: the kernel's admin guide, cgroup-v1/memory and cgroup-v2. Clean file cache can be dropped
# at any time, so it counts as free, though the groups charge it as used.

_CGROUPS = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_UNLIMITED = 1 << 60
"""Version 1 says unlimited by a limit near 2⁶³."""


def cgroup_room(cgroups: Path = _CGROUPS, mounts: Path = _MOUNTS) -> int | None:
    """Bytes this process can still allocate in its tightest group, None without any limit.

    cgroups, mounts: the kernel's lists of the process's groups and of mounted hierarchies.
    """
    rooms = map(_room, memory_groups(cgroups, mounts))
    return min((one for one in rooms if one is not None), default=None)


def cgroup_limit(cgroups: Path = _CGROUPS, mounts: Path = _MOUNTS) -> int | None:
    """Bytes that the tightest group of this process may hold in all, None without any limit."""
    limits = map(_limit, memory_groups(cgroups, mounts))
    return min((one for one in limits if one is not None), default=None)


def memory_groups(cgroups: Path = _CGROUPS, mounts: Path = _MOUNTS) -> Iterator[Path]:
    """Folders of the memory groups of this process, ancestors included, of both versions."""
    try:
        lines = cgroups.read_text().splitlines()
        mounted = list(_memory_mounts(mounts))
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 0 if controllers else 2
        for mount_version, root, folder in mounted:
            if mount_version == version:
                below = _below(group, root)
                yield from (folder / part for part in (below, *below.parents))


def _memory_mounts(mounts: Path) -> Iterator[tuple[int, str, Path]]:
    """Version, root within the hierarchy and folder of each mounted memory hierarchy."""
    for line in mounts.read_text().splitlines():
        place, _, kind = line.partition(" - ")
        fields, (system, _, options) = place.split(), kind.split(" ", 2)
        if system == "cgroup2":
            yield 2, fields[3], Path(fields[4])
        elif system == "cgroup" and "memory" in options.split(","):
            yield 1, fields[3], Path(fields[4])


def _below(group: str, root: str) -> PurePosixPath:
    """Path of a group below a mount; a container often sees only its own subtree."""
    path = PurePosixPath(group)
    below = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
    return PurePosixPath() if ".." in below.parts else below  # of another namespace


def _limit(group: Path) -> int | None:
    limits = [_number(group / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return min((one for one in limits if one is not None and one < _UNLIMITED), default=None)


def _room(group: Path) -> int | None:
    limit = _limit(group)
    used = _number(group / "memory.current")
    if used is None:
        used = _number(group / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    return max(limit - used + _file_cache(group), 0)


def _file_cache(group: Path) -> int:
    """Bytes of file cache that the kernel can drop: not shared memory, not locked, written out."""
    stat = _stat(group)
    # Version 1 has figures of the group alone, and with total_ those of its children too.
    prefix = "total_" if "total_cache" in stat else ""
    on_lists = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
    unwritten = sum(
        stat.get(prefix + name, 0)
        for name in ("dirty", "writeback", "file_dirty", "file_writeback")
    )
    return max(on_lists - unwritten, 0)


def _stat(group: Path) -> dict[str, int]:
    try:
        pairs = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        return {name: int(value) for name, value in pairs}
    except (OSError, ValueError):
        return {}


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max"
        return None
