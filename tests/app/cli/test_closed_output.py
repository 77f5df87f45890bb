"""Standard streams that are closed, full or not there."""

import subprocess
from pathlib import Path

import pytest

from tests.app.conftest import Launch

pytestmark = pytest.mark.usefixtures("llamacpp")

ENDLESS = ("ask", "--raw", "one two one two one two one two", "--temperature", "0")
SHORT = ("ask", "hi", "--max-tokens", "2")


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_quietly(launch: Launch) -> None:
    process = launch(*ENDLESS, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.read(6)
    process.stdout.close()
    assert process.stderr is not None
    lines = process.stderr.read().splitlines()
    assert [line for line in lines if not line.startswith(b"measuring ")] == []  # told after 15 s
    assert process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [SHORT, (*SHORT, "--json"), ("chat",), ("doctor",), ("path", "data")]
)
def test_a_full_disk_under_standard_output_is_an_error(
    launch: Launch, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        process = launch(*arguments, stdout=full)
        _, err = process.communicate(b"hi\n")
    assert process.returncode == 1
    assert b"cannot write the answer: No space left on device" in err
    assert b"Traceback" not in err


@pytest.mark.slow
def test_help_onto_a_full_disk_is_no_fault_of_specchat(launch: Launch) -> None:
    with Path("/dev/full").open("wb") as full:
        process = launch("--help", stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert b"No space left on device" in err
    assert b"Please report" not in err


@pytest.mark.slow
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_stream_that_is_not_open_is_no_fault_of_specchat(launch: Launch, closed: int) -> None:
    process = launch(*SHORT, first=f"os.close({closed})")
    out, err = process.communicate(b"")
    assert b"Please report" not in err
    assert b"Traceback" not in err
    if closed != 1:
        assert process.returncode == 0
        assert out.strip()


@pytest.mark.parametrize(
    "arguments", [("path", "data"), pytest.param(SHORT, marks=pytest.mark.slow)]
)
def test_an_answer_that_nobody_can_read_is_an_error(
    launch: Launch, arguments: tuple[str, ...]
) -> None:
    process = launch(*arguments, first="os.close(1)")
    _, err = process.communicate(b"")
    assert err == b"specchat: cannot write the answer: standard output is closed\n"
    assert process.returncode == 1
