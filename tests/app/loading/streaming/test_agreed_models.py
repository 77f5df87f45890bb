"""What is recorded of models that the user agreed to stream."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.loading.streaming import AgreedModels


def test_another_process_knows_what_was_agreed_to(tmp_path: Path) -> None:
    record, model = tmp_path / "agreed.json", tmp_path / "model.gguf"
    AgreedModels(record).add(model)
    program = (
        "import sys; from pathlib import Path\n"
        "from app.loading.streaming import AgreedModels\n"
        "print(*[AgreedModels(Path(sys.argv[1])).has(Path(name)) for name in sys.argv[2:]])"
    )
    command = [sys.executable, "-c", program, str(record), str(model), str(tmp_path / "other")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True", "False"]


def test_a_record_that_cannot_be_written_does_not_ask_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the place of a folder")
    agreed = AgreedModels(tmp_path / "file" / "agreed.json")
    agreed.add(tmp_path / "model.gguf")
    assert agreed.has(tmp_path / "model.gguf")
    assert not agreed.has(tmp_path / "other.gguf")


def test_what_was_recorded_is_forgotten_with_the_record(tmp_path: Path) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    agreed.add(tmp_path / "model.gguf")
    agreed.file.unlink()
    assert not agreed.has(tmp_path / "model.gguf")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"schema": 1, "models": 7}', b"[" * 100_000])
def test_a_damaged_record_asks_again(tmp_path: Path, content: bytes) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    agreed.file.write_bytes(content)
    assert not agreed.has(tmp_path / "model.gguf")
    agreed.add(tmp_path / "model.gguf")
    assert agreed.has(tmp_path / "model.gguf")


def test_a_record_that_cannot_be_read_asks_again_in_the_next_process_only(tmp_path: Path) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    agreed.file.mkdir()
    assert not agreed.has(tmp_path / "model.gguf")
    agreed.add(tmp_path / "model.gguf")
    assert agreed.has(tmp_path / "model.gguf")
