"""`--gpu-layers`: a number, or auto; and what doctor and models info tell. The GPU is made up."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.loading.placement import GPU_RESERVE
from app.loading.session_options import AUTO_LAYERS, SessionOptions
from app.settings import catalogue
from app.settings.in_effect import settings_in_effect
from backends.base import UsageError
from backends.llamacpp import library
from backends.llamacpp.library import Device
from tests.app.conftest import Specchat

KEY = catalogue.BY_NAME["gpu_layers"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    free = GPU_RESERVE + 100_000_000
    device = Device(1, "CUDA", "made up", free, 8 * 10**9)
    monkeypatch.setattr(library, "can_offload", lambda: True)
    monkeypatch.setattr(library, "_devices", lambda: [device])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[SessionOptions]:
    """Options of the sessions that commands would open, none of which opens."""
    found: list[SessionOptions] = []

    def opening(options: SessionOptions, *_rest: object, **_more: object) -> Any:
        found.append(options)
        raise UsageError("enough")

    monkeypatch.setattr("app.engine.session_opening.open_session", opening)
    return found


@pytest.mark.parametrize(
    ("typed", "variable", "stored", "expected"),
    [
        (None, None, None, None),
        ("20", None, None, 20),
        (None, None, "9", 9),
        ("auto", "7", "9", None),
        ("0", "auto", '"auto"', 0),
        (None, "auto", "9", None),
    ],
)
def test_what_is_typed_comes_first(
    specchat: Specchat,
    opened: list[SessionOptions],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str | None,
    variable: str | None,
    stored: str | None,
    expected: int | None,
) -> None:
    if variable:
        monkeypatch.setenv("SPECCHAT_GPU_LAYERS", variable)
    if stored:
        file = home / "config" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"gpu_layers = {stored}\n", encoding="utf-8")
    specchat("ask", "hi", *(("--gpu-layers", typed) if typed else ()))
    assert [options.gpu_layers for options in opened] == [expected]


def test_what_is_neither_a_number_nor_auto_is_refused(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = specchat("ask", "hi", "--gpu-layers", "most")
    assert ended.returncode == 2
    assert "neither a whole number nor auto" in " ".join(ended.stderr.split())
    monkeypatch.setenv("SPECCHAT_GPU_LAYERS", "most")
    ended = specchat("ask", "hi")
    assert ended.returncode == 2
    assert "SPECCHAT_GPU_LAYERS cannot be" in ended.stderr


@pytest.mark.parametrize("value", [1.5, True, "Auto", "", -1])
def test_settings_take_numbers_and_auto_only(value: object) -> None:
    assert catalogue.checked(KEY, AUTO_LAYERS) == AUTO_LAYERS
    assert catalogue.checked(KEY, 20) == 20
    with pytest.raises(UsageError, match="GPU layers cannot be"):
        catalogue.checked(KEY, value)


def test_the_app_reads_auto_as_well(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.paths import Paths

    monkeypatch.setenv("SPECCHAT_GPU_LAYERS", "auto")
    values = settings_in_effect(Paths.of_this_user()).values
    assert values["gpu_layers"] == AUTO_LAYERS
    assert SessionOptions.of(values).gpu_layers is None


@pytest.mark.usefixtures("card")
def test_doctor_tells_the_memory_and_the_division(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    for measured in ("processor_bandwidth", "disk_speed"):
        monkeypatch.setattr(f"app.cli.commands.doctor.{measured}", lambda *_, **_more: None)
    ended = specchat("doctor", "--json")
    facts = json.loads(ended.stdout)
    (gpu,) = facts["gpus"]
    assert (gpu["name"], gpu["total_bytes"], gpu["is_unified"]) == ("made up", 8 * 10**9, False)
    split = facts["gpu_split"]
    assert (split["model"], split["layers"]) == ("demo", 30)
    assert split["words"] == f"{split['gpu_layers'] - 1} of 30 layers on the GPU"
    assert 1 < split["gpu_layers"] < 31
    text = specchat("doctor").stdout
    assert "made up, 1.2 GB available of 8.0 GB" in text
    assert f"demo: {split['words']}" in text


@pytest.mark.usefixtures("card")
def test_info_tells_the_division(specchat: Specchat) -> None:
    layers = json.loads(specchat("models", "info", "demo", "--json").stdout)["gpu_layers"]
    assert layers["words"] == f"{layers['count'] - 1} of 30 layers on the GPU"
    assert layers["words"] in specchat("models", "info", "demo").stdout


def test_without_a_gpu_nothing_is_told(specchat: Specchat) -> None:
    assert json.loads(specchat("models", "info", "demo", "--json").stdout)["gpu_layers"] is None
    assert "of 30 layers" not in specchat("models", "info", "demo").stdout
