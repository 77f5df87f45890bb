"""The catalogue compared with a hub: a small one on this machine."""

from pathlib import Path

import pytest

from models.catalogue import read
from scripts.release.check_catalogue import main
from tests.fixtures.local_hub import LocalHub

CATALOGUE = """
quantizations = ["Q4_K_M", "Q8_0"]
drafters.mtp = { repository = "org/heads", kind = "next-token-layers" }

[family.one]
licence = "mit"
context = 1024

[[model]]
name = "right"
family = "one"
parameters = 1e9
repository = "org/right-GGUF"
sizes = { Q4_K_M = 0.6e9 } # rounded
mlx = "org/right-4bit"

# a comment between two models

[[model]]
name = "wrong"
family = "one"
parameters = 2e9
repository = "org/wrong-GGUF"
sizes = { Q4_K_M = 1.2e9 }

[[model]]
name = "gone"
family = "one"
parameters = 2e9
repository = "org/gone-GGUF"
"""

SIZES = {
    "org/heads": {},
    "org/right-4bit": {"model.safetensors": 5},
    "org/right-GGUF": {
        "right-Q4_K_M.gguf": 601_000_000,
        "right-Q8_0-00001-of-00002.gguf": 700_000_000,
        "right-Q8_0-00002-of-00002.gguf": 400_000_001,
    },
    "org/wrong-GGUF": {"wrong-Q4_K_M.gguf": 1_300_000_000},
}


@pytest.fixture
def hub(local_hub: LocalHub) -> str:
    for name, sizes in SIZES.items():
        local_hub.repositories[name] = dict.fromkeys(sizes, b"")
        local_hub.claimed_sizes |= sizes
    local_hub.facts["org/wrong-GGUF"] = {"gated": "manual"}
    return local_hub.endpoint


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "catalogue.toml"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


def test_each_difference_is_named(
    hub: str, catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--endpoint", hub, "--catalogue", str(catalogue)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "right  agrees",
        "wrong  gated; no wrong-Q8_0.gguf; Q4_K_M is 1,300,000,000 bytes, not 1,200,000,000",
        "gone   no org/gone-GGUF",
    ]
    assert catalogue.read_text(encoding="utf-8") == CATALOGUE


def test_exact_sizes_and_the_day_are_written_for_models_that_agree(
    hub: str, catalogue: Path
) -> None:
    main(["--endpoint", hub, "--catalogue", str(catalogue), "--write"])
    text = catalogue.read_text(encoding="utf-8")
    right, wrong, _ = read(text)
    assert right.sizes == {"Q4_K_M": 601_000_000, "Q8_0": 1_100_000_001}
    assert len(right.checked) == len("2026-01-01")
    assert (wrong.sizes, wrong.checked) == ({"Q4_K_M": 1.2e9}, "")
    assert "# a comment between two models" in text
    main(["right", "--endpoint", hub, "--catalogue", str(catalogue), "--write"])
    assert catalogue.read_text(encoding="utf-8") == text


def test_only_the_models_named_are_checked(hub: str, catalogue: Path) -> None:
    assert main(["right", "--endpoint", hub, "--catalogue", str(catalogue)]) == 0
