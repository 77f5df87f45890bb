"""Facts of this machine that hold for every engine."""

import os
import platform
import sys
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def physical_cores() -> int:
    """Cores this process may use, two threads of one core counted once."""
    count = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = min(count, len(os.sched_getaffinity(0)))
    return max(count, 1)


def available_memory() -> int:
    """Bytes this process can still claim: the machine's, or its container's if that is less."""
    return min(psutil.virtual_memory().available, _cgroup_room())


def total_memory() -> int:
    """Bytes of memory in the machine."""
    return psutil.virtual_memory().total


def peak_memory_bytes() -> int | None:
    """The most memory this program had resident so far, None where the system does not tell."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux carries ru_maxrss over from whatever program started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def processor_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cgroup_room() -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        return max(int(limit) - used, 0) if limit != "max" else 1 << 62
    except (OSError, ValueError):
        return 1 << 62
