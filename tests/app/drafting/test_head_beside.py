"""Which of several heads of a kind drafts for a model: its own layers, or a file beside it."""

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from app.drafting import draft_spec
from app.drafting.draft_spec import head_beside
from app.drafting.drafter_handle import DrafterEnvironment
from app.drafting.model_source import source_of
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends import llamacpp
from backends.base import DraftUnavailableError
from backends.engines.backend_selection import AUTO, forms
from backends.files.gguf_drafter import TrainedKind
from models.metadata.memory_bill import facts_of
from models.reference import Reference
from tests.fixtures.tiny.kinds import Pair

PROMPT = [1, 75, 300, 299]
NEXT = TrainedKind.NEXT_TOKEN_LAYERS


def drafted(path: Path, lock_bytes: int | None) -> Path:
    """Run the head that `--draft mtp` finds for a model, and return its file."""
    paths = Paths.of_this_user()
    (node,) = draft_spec.parse("mtp", paths, Reference(path.name, path), forms(AUTO)).nodes
    with closing(llamacpp.load(path, threads=1, lock_bytes=lock_bytes)) as model:
        own = model.open(64)
        environment = DrafterEnvironment(
            target=model,
            context=TargetContext(model, own),
            paths=paths,
            threads=1,
            gpu_layers=0,
            notify=lambda _: None,
        )
        with closing(source_of(node, environment, None).load()[0]) as head:
            drafting = head.open(64)
            own.forward(PROMPT, 1)
            drafting.forward([*PROMPT, 5], 1)
            return head.info.path


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_model_that_streams_uses_the_file_beside_it(pair: Pair, share: float) -> None:
    path, beside = pair("qwen35-sidecar")
    assert drafted(path, round(share * facts_of(path).weight_bytes)) == beside


def test_a_model_in_memory_uses_its_own_layers(pair: Pair) -> None:
    path, beside = pair("qwen35-sidecar")
    assert drafted(path, None) == path
    assert head_beside(NEXT, path) == path
    assert head_beside(NEXT, path, is_alone=True) == beside


def test_without_a_file_beside_it_a_model_that_streams_says_why(pair: Pair) -> None:
    path, _ = pair("qwen35")
    with pytest.raises(DraftUnavailableError, match="left out of a model that streams"):
        drafted(path, 0)
