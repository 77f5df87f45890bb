"""A model runs in a child before it is loaded here: once, and a crash is the child's."""

import ast
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from app.loading.checked_loader import MOST, Proofs, ProvenModels, proof_key
from app.paths import Paths
from backends.base import ModelError
from backends.engines.backend_selection import LLAMACPP
from backends.proof import proof_process
from backends.proof.proof_process import Trial
from scripts.fuzzing.gguf_parts import GgufParts
from tests.fixtures.damaged_gguf import good_parts, repeat_token, set_number, written

pytestmark = pytest.mark.usefixtures("llamacpp")

PATIENCE_SECONDS = 60
ROOT = Path(__file__).parents[3]
_LOADER = "backends.engines.model_loading"
EPSILON = "attention.layer_norm_rms_epsilon"
Started = list[Trial]


@pytest.fixture
def models(home: Path) -> ProvenModels:
    paths = Paths.of_this_user()
    paths.proofs.unlink(missing_ok=True)
    return ProvenModels(paths, lambda text: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What children are asked to run, as it comes."""
    found: Started = []
    prove = proof_process.ProofProcess.prove

    def noted(self: proof_process.ProofProcess, trial: Trial, *rest: object) -> None:
        found.append(trial)
        prove(self, trial, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(proof_process.ProofProcess, "prove", noted)
    return found


def load(models: ProvenModels, path: Path) -> None:
    models.load(path, 1, 0).close()


@pytest.fixture
def crashing(tmp_path: Path) -> Path:
    """A file that no check of ours knows, and that the engine aborts over."""
    parts = good_parts(tmp_path / "good", "qwen2")
    set_number(parts, "rope.dimension_count", 4)
    return written(tmp_path, parts)


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A file over which the engine never ends."""
    parts = good_parts(tmp_path / "good", "hybrid")
    set_number(parts, "rope.dimension_count", 0)
    return written(tmp_path, parts)


def number(key: str, value: float) -> Callable[[GgufParts], None]:
    return lambda parts: set_number(parts, key, value)


@pytest.mark.parametrize(
    "damage",
    [
        repeat_token,
        number("block_count", 0),
        number("block_count", 1 << 31),
        number("expert_used_count", 0),
        number("expert_used_count", 5),
        number("expert_count", 5000),
        number(EPSILON, -1.0),
    ],
)
def test_files_that_once_ended_the_app_are_refused(
    tmp_path: Path, models: ProvenModels, damage: Callable[[GgufParts], None]
) -> None:
    parts = good_parts(tmp_path / "good", "experts")
    damage(parts)
    with pytest.raises(ModelError, match=r"cannot run .*damaged\.gguf"):
        load(models, written(tmp_path, parts))


@pytest.mark.slow
def test_a_crash_is_told_with_what_the_engine_said_last(
    models: ProvenModels, crashing: Path
) -> None:
    with pytest.raises(ModelError, match=r"damaged\.gguf stops the engine") as told:
        load(models, crashing)
    assert "n_embd_head == n_rot" in told.value.why
    if os.name == "posix":
        assert "SIGABRT" in told.value.why
    with pytest.raises(ModelError, match="stops the engine"):
        load(models, crashing)  # nothing was kept of it


def proving() -> list[psutil.Process]:
    """Children that prove; other tests in this process may have children of their own."""
    children = psutil.Process().children()
    return [child for child in children if "backends.proof.proof_worker" in child.cmdline()]


@pytest.mark.slow
def test_a_hang_is_given_up(
    models: ProvenModels, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(proof_process._SECONDS, LLAMACPP, 0.5)
    with pytest.raises(ModelError, match="did not answer in"):
        load(models, hanging)
    assert not proving()


def test_a_model_that_takes_all_memory_is_ended(
    models: ProvenModels, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_process, "_MOST_BYTES", 0)
    with pytest.raises(ModelError, match=r"it took over 0\.0 GB"):
        load(models, hanging)
    assert not proving()


def test_a_vocabulary_is_proved_too(tmp_path: Path, models: ProvenModels, asked: Started) -> None:
    parts = good_parts(tmp_path / "good")
    path = written(tmp_path, parts)
    for _ in range(2):
        with models.vocabulary(path) as found:
            assert found.tokenizer.n_vocab
    assert [trial.vocabulary_only for trial in asked] == [True]
    repeat_token(parts)
    with pytest.raises(ModelError, match="twice"), models.vocabulary(written(tmp_path, parts)):
        pass


def test_the_second_start_pays_nothing(
    tmp_path: Path, models: ProvenModels, asked: Started
) -> None:
    path = written(tmp_path, good_parts(tmp_path / "good"))
    load(models, path)
    assert len(asked) == 1
    load(models, path)
    assert len(asked) == 1
    os.utime(path, ns=(1, 1))
    load(models, path)
    assert len(asked) == 2


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"schema":1,"proven":7}', b"{" * 9999])
def test_a_damaged_record_is_made_anew(
    tmp_path: Path, models: ProvenModels, asked: Started, content: bytes
) -> None:
    path = written(tmp_path, good_parts(tmp_path / "good"))
    models.paths.proofs.write_bytes(content)
    load(models, path)
    load(models, path)
    assert len(asked) == 1


def test_the_record_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    proofs = Proofs(tmp_path / "proofs.json")
    keys = [f"{one:032}" for one in range(MOST)]
    proofs.file.write_text(f'{{"schema": 1, "proven": {keys}}}'.replace("'", '"'))
    proofs.add("new")
    assert proofs.hold("new")
    assert not proofs.hold(keys[0])
    assert proofs.hold(keys[1])


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"big-0000{one}-of-00002.gguf" for one in (1, 2))
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    before = proof_key(Trial(first, LLAMACPP))
    second.write_bytes(b"three")
    assert proof_key(Trial(first, LLAMACPP)) != before
    second.unlink()
    with pytest.raises(ModelError, match="cannot read"):
        proof_key(Trial(first, LLAMACPP))


def test_what_notify_raises_ends_the_child(models: ProvenModels, hanging: Path) -> None:
    told: list[str] = []

    def stop(text: str) -> None:
        told.append(text)
        if len(told) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(ProvenModels(models.paths, stop), hanging)
    assert set(told) == {"checking damaged.gguf"}
    assert not proving()


_PROVES = """
import sys
import psutil
from pathlib import Path
from backends.proof.proof_process import ProofProcess, Trial

def tick():
    for child in psutil.Process().children():
        print(child.pid, flush=True)

ProofProcess().prove(Trial(Path(sys.argv[1]), "llamacpp", 1, 0), 1 << 40, tick)
"""


@pytest.mark.slow
def test_a_killed_app_leaves_no_child(hanging: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", _PROVES, str(hanging)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as app:
        assert app.stdout is not None
        child = psutil.Process(int(app.stdout.readline()))
        app.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(PATIENCE_SECONDS)


def test_nothing_else_in_the_app_reaches_an_engine() -> None:
    loading = {"load", "vocabulary"}
    for file in (ROOT / "app").rglob("*.py"):
        if file.name == "proven_models.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == _LOADER:
                assert not loading & {name.name for name in node.names}, file
