"""Processor and memory of this machine, and of its control groups."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from backends.hardware import host
from backends.hardware.host import cgroup_limit, cgroup_room


@pytest.fixture(autouse=True)
def _unremembered() -> Iterator[None]:
    host.processor_name.cache_clear()
    yield
    host.processor_name.cache_clear()


def test_a_mac_is_known_by_its_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(command: list[str], **_: Any) -> CompletedProcess[str]:
        assert command[1:] == ["-n", "machdep.cpu.brand_string"]
        return CompletedProcess(command, 0, "Apple M4 Pro\n", "")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", told)
    assert host.processor_name() == "Apple M4 Pro"


@pytest.mark.parametrize("fault", [FileNotFoundError(), subprocess.TimeoutExpired("sysctl", 5)])
def test_one_that_does_not_tell_is_known_by_its_architecture(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> CompletedProcess[str]:
        raise fault

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", fails)
    monkeypatch.setattr(host.platform, "machine", lambda: "arm64")
    assert host.processor_name() == "arm64"


def test_this_machine_has_a_name() -> None:
    assert host.processor_name().strip()


MB = 1_000_000


@pytest.fixture
def system(tmp_path: Path) -> "System":
    return System(tmp_path)


class System:
    """Groups in a folder, listed as the kernel lists them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cgroups, self.mounts = folder / "cgroup", folder / "mountinfo"

    def process(self, line: str) -> None:
        self.cgroups.write_text(f"8:pids:/elsewhere\n{line}\n")

    def mount(self, *, version: int, root: str = "/") -> Path:
        place = self.folder / f"v{version}"
        place.mkdir()
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        self.mounts.write_text(
            f"22 1 0:5 / / rw - ext4 /dev/a rw\n30 22 0:28 {root} {place} rw,relatime - {kind}\n"
        )
        return place

    def room(self) -> int | None:
        return cgroup_room(self.cgroups, self.mounts)

    def limit(self) -> int | None:
        return cgroup_limit(self.cgroups, self.mounts)


def version_2(folder: Path, limit: str, used: int, stat: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


def version_1(folder: Path, limit: int, used: int, stat: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


def test_file_cache_that_can_be_dropped_is_free_in_version_2(system: System):
    group = system.mount(version=2) / "a.slice"
    stat = f"anon 1\nfile {500 * MB}\nfile_dirty {MB}\ninactive_file {300 * MB}\n"
    version_2(group, str(900 * MB), 800 * MB, stat + f"active_file {100 * MB}\n")
    system.process("0::/a.slice")
    assert system.room() == (900 - 800 + 400 - 1) * MB
    assert system.limit() == 900 * MB


def test_version_1_counts_the_cache_of_groups_below_too(system: System):
    group = system.mount(version=1) / "a"
    stat = f"cache 0\ninactive_file 0\ntotal_cache 9\ntotal_inactive_file {50 * MB}\n"
    version_1(group, 900 * MB, 800 * MB, stat + f"total_active_file {MB}\ntotal_dirty {MB}\n")
    system.process("4:memory:/a")
    assert system.room() == 150 * MB


@pytest.mark.parametrize("tight", ["", "outer", "outer/inner"])
def test_the_tightest_of_nested_groups_counts(system: System, tight: str):
    top = system.mount(version=2)
    for name in ("", "outer", "outer/inner"):
        version_2(top / name, str(100 * MB) if name == tight else "max", 40 * MB)
    system.process("0::/outer/inner")
    assert system.room() == 60 * MB
    assert system.limit() == 100 * MB


def test_a_container_that_sees_only_its_own_groups(system: System):
    inside = system.mount(version=1, root="/docker/abc")
    version_1(inside, 100 * MB, 30 * MB)
    system.process("4:cpu,memory:/docker/abc")
    assert system.room() == 70 * MB


def test_a_group_outside_of_the_namespace_is_taken_as_its_root(system: System):
    version_2(system.mount(version=2), str(100 * MB), 30 * MB)
    system.process("0::/../../other")
    assert system.room() == 70 * MB


def test_no_limit_and_no_groups(system: System, tmp_path: Path):
    version_1(system.mount(version=1), 9223372036854771712, 30 * MB)
    system.process("4:memory:/")
    assert system.room() is None
    assert cgroup_room(tmp_path / "none", tmp_path / "none") is None
    system.mounts.write_text("nonsense\n")
    assert system.room() is None


def test_more_used_than_allowed_leaves_nothing(system: System):
    version_2(system.mount(version=2), str(10 * MB), 30 * MB, "broken")
    system.process("0::/")
    assert system.room() == 0
