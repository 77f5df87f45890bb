"""A model that ends the engine."""

from pathlib import Path

import pytest

from tests.fixtures.damaged_gguf import good_parts, set_number, written


@pytest.fixture
def crashing(tmp_path: Path) -> Path:
    """A file that no check of ours knows, and that the engine aborts over."""
    parts = good_parts(tmp_path / "good", "qwen2")
    set_number(parts, "rope.dimension_count", 4)
    return written(tmp_path, parts, "crashing.gguf")
