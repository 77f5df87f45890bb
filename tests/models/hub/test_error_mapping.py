"""What the hub refuses is explained."""

import pytest

from backends.base import DownloadError
from tests.fixtures.local_hub import LocalHub
from tests.models.hub.conftest import REPOSITORY, Pull

REFUSALS = {
    "gated": (403, {"X-Error-Code": "GatedRepo"}, ["is gated", "HF_TOKEN", f"/{REPOSITORY}"]),
    "unauthorized": (401, {}, ["private", "HF_TOKEN", f"/{REPOSITORY}"]),
    "stale token": (
        401,
        {"X-Error-Message": "Invalid credentials in Authorization header"},
        ["does not know your token", "HF_TOKEN"],
    ),
    "forbidden": (403, {}, ["private", "HF_TOKEN"]),
    "missing": (404, {}, [f"has no {REPOSITORY}"]),
    "busy": (429, {"Retry-After": "37"}, ["too many requests", "in 37 seconds"]),
    "broken": (500, {}, ["500", "is resumed"]),
    "teapot": (418, {}, ["418"]),
}


@pytest.mark.parametrize("place", ["/api/models/", "/resolve/"])
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_explained(hub: LocalHub, pull: Pull, case: str, place: str) -> None:
    status, headers, words = REFUSALS[case]
    hub.refusals[place] = (status, headers)
    with pytest.raises(DownloadError) as refused:
        pull()
    for word in words:
        assert word in str(refused.value)


def test_a_repository_that_does_not_exist(pull: Pull) -> None:
    with pytest.raises(DownloadError, match="nobody/nothing cannot be read"):
        pull(None, "nobody/nothing")
    with pytest.raises(DownloadError, match="organization/name"):
        pull(None, "../../etc")


def test_names_that_steer_a_terminal_are_passed_over(hub: LocalHub, pull: Pull) -> None:
    hub.repositories["maker/Odd"] = {"\x1b[2J-Q8_0.gguf": b"odd", "Odd-Q4_0.gguf": b"weights"}
    assert pull(None, "maker/Odd")[0].path.name == "Odd-Q4_0.gguf"
