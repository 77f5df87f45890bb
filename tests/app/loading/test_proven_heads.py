"""A head runs in a child beside its model before it is loaded here, where memory allows."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.loading import checked_loader as proven_models
from app.loading.checked_loader import ProvenModels, proof_key
from app.paths import Paths
from backends.base import Model, ModelError
from backends.engines.backend_selection import LLAMACPP
from backends.proof import proof_process
from backends.proof.proof_process import ProofProcess, Trial
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.pairs import Pair

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def models(home: Path) -> ProvenModels:
    paths = Paths.of_this_user()
    paths.proofs.unlink(missing_ok=True)
    return ProvenModels(paths, lambda text: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """What children are asked to run, as it comes."""
    found: list[Trial] = []
    prove = ProofProcess.prove

    def noted(self: ProofProcess, trial: Trial, *rest: object) -> None:
        found.append(trial)
        prove(self, trial, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(proof_process.ProofProcess, "prove", noted)
    return found


@pytest.fixture
def loaded(models: ProvenModels, pair: Pair) -> Iterator[tuple[Model, Path]]:
    """A model, and the file of a head for it."""
    path, head = pair("eagle3")
    with closing(models.load(path, 1, 0)) as model:
        yield model, head


def load(models: ProvenModels, model: Model, head: Path) -> None:
    with closing(model.open(64)) as context:
        models.load_head(head, model, context).close()


def test_a_head_runs_beside_its_model_once(
    models: ProvenModels, loaded: tuple[Model, Path], asked: list[Trial]
) -> None:
    model, head = loaded
    load(models, model, head)
    load(models, model, head)
    assert [trial.head for trial in asked] == [head]
    with head.open("ab") as file:  # another file now
        file.write(b"\0" * 32)
    load(models, model, head)
    assert len(asked) == 2


def test_where_memory_is_short_its_header_has_to_do(
    models: ProvenModels,
    loaded: tuple[Model, Path],
    asked: list[Trial],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proven_models, "available_memory", lambda: 0)
    load(models, *loaded)
    assert asked == []


def test_a_head_that_ends_the_child_is_refused(
    models: ProvenModels, loaded: tuple[Model, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_process, "_MOST_BYTES", 0)
    monkeypatch.setattr(proof_process, "_POLL_SECONDS", 0.0)  # before so small a head has drafted
    with pytest.raises(ModelError, match=r"eagle3\.gguf stops the engine: it took over"):
        load(models, *loaded)


def test_a_head_that_was_refused_is_tried_again(
    models: ProvenModels,
    loaded: tuple[Model, Path],
    asked: list[Trial],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal is no proof, and leaves nothing in the way of one."""
    model, head = loaded
    whole = head.read_bytes()
    head.write_bytes(whole[:-4096])
    for _ in range(2):
        with pytest.raises(ModelError, match="incomplete"):
            load(models, model, head)
    head.write_bytes(whole)
    with monkeypatch.context() as patch:
        patch.setattr(proof_process, "_MOST_BYTES", 0)
        patch.setattr(proof_process, "_POLL_SECONDS", 0.0)
        with pytest.raises(ModelError, match="stops the engine"):
            load(models, model, head)
    asked.clear()
    load(models, model, head)
    load(models, model, head)
    assert [trial.head for trial in asked] == [head]


def test_the_layers_of_a_model_draft_in_its_own_proof(
    models: ProvenModels, tiny: Tiny, asked: list[Trial]
) -> None:
    path = tiny("qwen35")
    with closing(models.load(path, 1, 0)) as model:
        load(models, model, path)
    assert [trial.head for trial in asked] == [None]
    plain, with_head = (proof_key(Trial(path, LLAMACPP, streams=one)) for one in (True, False))
    assert plain != with_head
