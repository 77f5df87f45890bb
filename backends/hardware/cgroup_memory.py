"""Memory that the control groups of this process leave it (Linux: containers, services, slices).

Sources: the kernel's admin guide, cgroup-v1/memory and cgroup-v2. Clean file cache can be dropped
at any time, so it counts as free, though the groups charge it as used.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_UNLIMITED = 1 << 60
"""Version 1 says unlimited by a limit near 2⁶³."""


def cgroup_room(cgroups: Path = _CGROUPS, mounts: Path = _MOUNTS) -> int | None:
    """Bytes this process can still allocate in its tightest group, None without any limit.

    cgroups, mounts: the kernel's lists of the process's groups and of mounted hierarchies.
    """
    rooms = [room for group in memory_groups(cgroups, mounts) if (room := _room(group)) is not None]
    return min(rooms, default=None)


def cgroup_limit(cgroups: Path = _CGROUPS, mounts: Path = _MOUNTS) -> int | None:
    """Bytes that the tightest group of this process may hold in all, None without any limit."""
    limits = [
        limit for group in memory_groups(cgroups, mounts) if (limit := _limit(group)) is not None
    ]
    return min(limits, default=None)


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
                yield from _with_ancestors(folder, _below(group, root))


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
    try:
        return PurePosixPath(group).relative_to(root)
    except ValueError:
        return PurePosixPath()


def _with_ancestors(mount: Path, below: PurePosixPath) -> Iterator[Path]:
    if ".." in below.parts:  # of another namespace
        below = PurePosixPath()
    for part in (below, *below.parents):
        yield mount / part


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
