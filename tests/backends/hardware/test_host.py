"""The name of the processor, by which measurements are told apart."""

import subprocess
import sys
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from backends.hardware import host


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
