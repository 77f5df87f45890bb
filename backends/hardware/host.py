"""Processor and memory of this machine."""

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

from backends.hardware.cgroup_memory import cgroup_limit, cgroup_room


def physical_cores() -> int:
    """Physical cores this process may use."""
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
    """Bytes of memory of the machine."""
    return psutil.virtual_memory().total


def memory_limit() -> int:
    """Bytes this process may hold at all: those of the machine, or of its container if fewer."""
    total, limit = total_memory(), cgroup_limit()
    return total if limit is None else min(total, limit)


def peak_memory_bytes() -> int | None:
    """Peak resident memory of this process, None if unknown."""
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
    """Name of the processor, its architecture if unknown."""
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
