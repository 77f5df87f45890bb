"""Models with a running state are drafted for, and draft: greedy replies are plain decoding's."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from backends.base import Model
from tests.fixtures.hybrid_checks import HybridContract, check_session
from tests.fixtures.hybrids import disturbed

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture(scope="session")
def drafter_model(
    llamacpp: ModuleType, hybrid_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    """A model of the same kind that is right about half of the time."""
    folder = tmp_path_factory.mktemp("disturbed")
    with closing(llamacpp.load(disturbed(hybrid_file, folder / hybrid_file.name, 0.2))) as model:
        yield model


class TestLlamaCpp(HybridContract):
    @pytest.mark.slow
    @pytest.mark.usefixtures("drafting_pays")
    @pytest.mark.parametrize("draft", ["lookup,ngram", "itself"])
    def test_a_session_drafts_for_it_and_with_it(self, hybrid_file: Path, draft: str) -> None:
        check_session(hybrid_file, str(hybrid_file) if draft == "itself" else draft)
