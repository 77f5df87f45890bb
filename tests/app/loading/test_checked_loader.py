"""Models and heads are loaded only after they ran in a child process."""

import ast
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.loading import checked_loader
from app.loading.checked_loader import CheckedLoader, proof_key, split_here
from app.loading.placement import GPU_RESERVE
from app.paths import Paths
from backends.base import Model, ModelError, watched_process
from backends.base.watched_process import WatchedProcess
from backends.engines import proof_process, proof_worker
from backends.engines.backend_selection import LLAMACPP
from backends.engines.engine_facts import expected_runner
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.llamacpp import library
from backends.llamacpp.library import Device
from models.bounded_files import MOST_NAMES, NameList
from scripts.fuzzing.gguf import GgufParts
from tests.fixtures.damaged_gguf import good_parts, repeat_token, set_number, written
from tests.fixtures.tiny.kinds import Pair, Tiny

pytestmark = pytest.mark.usefixtures("llamacpp")

PATIENCE_SECONDS = 60
ROOT = Path(__file__).parents[3]
_LOADER = "backends.engines.model_loading"
EPSILON = "attention.layer_norm_rms_epsilon"


@pytest.fixture
def models(home: Path) -> CheckedLoader:
    paths = Paths.of_this_user()
    paths.proofs.unlink(missing_ok=True)
    return CheckedLoader(paths, lambda text: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CrashCheck]:
    """What children are asked to run, as it comes."""
    found: list[CrashCheck] = []
    prove = proof_process.ProofProcess.prove

    def noted(self: proof_process.ProofProcess, trial: CrashCheck, *rest: object) -> None:
        found.append(trial)
        prove(self, trial, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(proof_process.ProofProcess, "prove", noted)
    return found


def load(models: CheckedLoader, path: Path) -> None:
    models.load(path, 1, 0).close()


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A file over which the engine never ends."""
    parts = good_parts(tmp_path / "good", "hybrid")
    set_number(parts, "rope.dimension_count", 0)
    return written(tmp_path, parts)


@pytest.mark.parametrize("damage", [repeat_token, lambda parts: set_number(parts, EPSILON, -1.0)])
def test_files_that_once_ended_the_app_are_refused(
    tmp_path: Path, models: CheckedLoader, damage: Callable[[GgufParts], None]
) -> None:
    parts = good_parts(tmp_path / "good", "experts")
    damage(parts)
    with pytest.raises(ModelError, match=r"cannot run .*damaged\.gguf"):
        load(models, written(tmp_path, parts))


@pytest.fixture(params=[False, True], ids=["small", "large"])
def _of_any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats small files as large ones, of which no weights are copied for the proof."""
    if request.param:
        monkeypatch.setattr(proof_process, "_LARGE_BYTES", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("_of_any_size")
def test_a_crash_is_told_with_what_the_engine_said_last(
    models: CheckedLoader, crashing: Path
) -> None:
    with pytest.raises(ModelError, match=r"crashing\.gguf stops the engine") as told:
        load(models, crashing)
    assert "n_embd_head == n_rot" in told.value.why
    if os.name == "posix":
        assert "SIGABRT" in told.value.why


@pytest.mark.slow
@pytest.mark.usefixtures("_of_any_size")
def test_a_file_that_was_cut_is_refused(tmp_path: Path, models: CheckedLoader) -> None:
    path = written(tmp_path, good_parts(tmp_path / "good"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096])
    with pytest.raises(ModelError, match=r"the file is incomplete"):
        load(models, path)
    path.write_bytes(whole)
    load(models, path)


_OTHERS: set[int] = set()
"""Processes of other tests, which may have children of their own that prove."""


@pytest.fixture(autouse=True)
def _of_other_tests() -> None:
    _OTHERS.clear()
    _OTHERS.update(child.pid for child in proving())


def proving() -> list[psutil.Process]:
    """Children of this test that prove."""
    children = [child for child in psutil.Process().children() if child.pid not in _OTHERS]
    return [child for child in children if "backends.engines.proof_worker" in child.cmdline()]


@pytest.mark.slow
@pytest.mark.usefixtures("_of_any_size")
def test_a_hang_in_the_first_pass_is_given_up(
    models: CheckedLoader, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(proof_process._SECONDS, LLAMACPP, 0.5)
    with pytest.raises(ModelError, match="did not answer in"):
        load(models, hanging)
    assert not proving()


def test_a_model_that_takes_all_memory_is_ended(
    models: CheckedLoader, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_process, "_MOST_BYTES", 0)
    with pytest.raises(ModelError, match=r"it took over 0\.0 GB"):
        load(models, hanging)
    assert not proving()


def test_a_vocabulary_is_proved_too(
    tmp_path: Path, models: CheckedLoader, asked: list[CrashCheck]
) -> None:
    parts = good_parts(tmp_path / "good")
    path = written(tmp_path, parts)
    for _ in range(2):
        with models.vocabulary(path) as found:
            assert found.tokenizer.n_vocab
    assert [trial.vocabulary_only for trial in asked] == [True]
    repeat_token(parts)
    with pytest.raises(ModelError, match="twice"), models.vocabulary(written(tmp_path, parts)):
        pass


def test_the_weights_of_a_large_file_are_left_out_of_its_proof(
    tmp_path: Path, models: CheckedLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = written(tmp_path, good_parts(tmp_path / "good")), list[object]()

    def sent(_self: WatchedProcess, request: dict[str, object]) -> None:
        monkeypatch.setattr(proof_worker, "load", loading)
        answer = proof_worker._answer(json.loads(json.dumps(request, default=str)))
        raise ModelError(answer["what"], "")

    def loading(*_: object, blank: bool, **_options: object) -> None:
        seen.append(blank)
        raise ModelError("it was asked for", "")

    monkeypatch.setattr(WatchedProcess, "send", sent)
    for size in (path.stat().st_size + 1, path.stat().st_size):
        monkeypatch.setattr(proof_process, "_LARGE_BYTES", size)
        with pytest.raises(ModelError, match="it was asked for"):
            load(models, path)
    assert seen == [False, True]


def test_the_second_start_pays_nothing(
    tmp_path: Path, models: CheckedLoader, asked: list[CrashCheck]
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
    tmp_path: Path, models: CheckedLoader, asked: list[CrashCheck], content: bytes
) -> None:
    path = written(tmp_path, good_parts(tmp_path / "good"))
    models.paths.proofs.write_bytes(content)
    load(models, path)
    load(models, path)
    assert len(asked) == 1


def test_the_record_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    proofs = NameList(tmp_path / "proofs.json", "proven")
    keys = [f"{one:032}" for one in range(MOST_NAMES)]
    proofs.file.write_text(f'{{"schema": 1, "proven": {keys}}}'.replace("'", '"'))
    proofs.add("new")
    assert "new" in proofs
    assert keys[0] not in proofs
    assert keys[1] in proofs


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"big-0000{one}-of-00002.gguf" for one in (1, 2))
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    before = proof_key(CrashCheck(first, LLAMACPP))
    second.write_bytes(b"three")
    assert proof_key(CrashCheck(first, LLAMACPP)) != before
    second.unlink()
    with pytest.raises(ModelError, match="cannot read"):
        proof_key(CrashCheck(first, LLAMACPP))


def test_what_notify_raises_ends_the_child(models: CheckedLoader, hanging: Path) -> None:
    told: list[str] = []

    def stop(text: str) -> None:
        told.append(text)
        if len(told) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(CheckedLoader(models.paths, stop), hanging)
    assert set(told) == {"checking damaged.gguf"}
    assert not proving()


_PROVES = """
import sys
import psutil
from pathlib import Path
from backends.engines.proof_process import ProofProcess, CrashCheck

def tick():
    for child in psutil.Process().children():
        print(child.pid, flush=True)

ProofProcess().prove(CrashCheck(Path(sys.argv[1]), "llamacpp", 1, 0), 1 << 40, tick)
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


@pytest.mark.slow
def test_nothing_else_in_the_app_reaches_an_engine() -> None:
    loading = {"load", "load_head", "vocabulary"}
    for file in (ROOT / "app").rglob("*.py"):
        if file.name == "checked_loader.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == _LOADER:
                assert not loading & {name.name for name in node.names}, file


@pytest.fixture
def loaded(models: CheckedLoader, pair: Pair) -> Iterator[tuple[Model, Path]]:
    """A model, and the file of a head for it."""
    path, head = pair("eagle3")
    with closing(models.load(path, 1, 0)) as model:
        yield model, head


def load_head(models: CheckedLoader, model: Model, head: Path) -> None:
    with closing(model.open(64)) as context:
        models.load_head(head, model, context).close()


def test_a_head_runs_beside_its_model_once(
    models: CheckedLoader, loaded: tuple[Model, Path], asked: list[CrashCheck]
) -> None:
    model, head = loaded
    load_head(models, model, head)
    load_head(models, model, head)
    assert [trial.head for trial in asked] == [head]
    with head.open("ab") as file:  # another file now
        file.write(b"\0" * 32)
    load_head(models, model, head)
    assert len(asked) == 2


def test_where_memory_is_short_its_header_has_to_do(
    models: CheckedLoader,
    loaded: tuple[Model, Path],
    asked: list[CrashCheck],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checked_loader, "available_memory", lambda: 0)
    load_head(models, *loaded)
    assert asked == []


@pytest.mark.slow
def test_a_head_that_was_refused_is_tried_again(
    models: CheckedLoader,
    loaded: tuple[Model, Path],
    asked: list[CrashCheck],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal is no proof, and leaves nothing in the way of one."""
    model, head = loaded
    whole = head.read_bytes()
    head.write_bytes(whole[:-4096])
    for _ in range(2):
        with pytest.raises(ModelError, match="incomplete"):
            load_head(models, model, head)
    head.write_bytes(whole)
    with monkeypatch.context() as patch:
        patch.setattr(proof_process, "_MOST_BYTES", 0)
        patch.setattr(watched_process, "_POLL_SECONDS", 0.0)  # before so small a head has drafted
        with pytest.raises(ModelError, match=r"eagle3\.gguf stops the engine: it took over"):
            load_head(models, model, head)
    asked.clear()
    load_head(models, model, head)
    load_head(models, model, head)
    assert [trial.head for trial in asked] == [head]


def test_the_layers_of_a_model_draft_in_its_own_proof(
    models: CheckedLoader, tiny: Tiny, asked: list[CrashCheck]
) -> None:
    path = tiny("qwen35")
    with closing(models.load(path, 1, 0)) as model:
        load_head(models, model, path)
    assert [trial.head for trial in asked] == [None]
    plain, with_head = (proof_key(CrashCheck(path, LLAMACPP, streams=one)) for one in (True, False))
    assert plain != with_head


Card = Callable[[int], None]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Put in a GPU with so many bytes beyond what stays free."""

    def put(size: int) -> None:
        device = Device(1, "CUDA", "made up", GPU_RESERVE + size, GPU_RESERVE + size)
        monkeypatch.setattr(library, "can_offload", lambda: True)
        monkeypatch.setattr(library, "_devices", lambda: [device])

    return put


@pytest.mark.parametrize(
    ("size", "fewest", "most"),
    [(None, None, None), (10**12, 31, 31), (120_000_000, 1, 30), (50_000_000, 0, 0)],
)
def test_as_many_layers_as_fit(
    card: Card, demo_file: Path, size: int | None, fewest: int | None, most: int | None
) -> None:
    if size is not None:
        card(size)
    split = split_here(demo_file, LLAMACPP)
    if fewest is None or most is None:
        assert split is None
        return
    assert split is not None
    assert fewest <= split.gpu_layers <= most
    assert split.is_whole == (fewest > 30)


def test_a_model_that_is_loaded_without_a_number_gets_what_fits(
    card: Card, tiny_llama: Callable[..., Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_llama(layers=4)
    proven: list[CrashCheck] = []

    def prove(_self: ProofProcess, trial: CrashCheck, *_rest: object) -> None:
        proven.append(trial)

    monkeypatch.setattr(ProofProcess, "prove", prove)
    models = CheckedLoader(Paths.of_this_user(), lambda _: None)
    card(0)
    model = models.load(path, 1, None)
    assert proven[0].gpu_layers == 0
    assert model.info.device.startswith("CPU")
    model.close()
    card(10**12)
    model = models.load(path, 1, None)
    assert proven[1].gpu_layers is None
    assert model.info.device == "GPU: made up"
    model.close()


def test_one_proof_holds_for_any_number_of_layers(card: Card, demo_file: Path) -> None:
    card(10**12)
    keys = {
        layers: proof_key(CrashCheck(demo_file, LLAMACPP, 1, layers)) for layers in (None, 0, 5, 12)
    }
    assert keys[5] == keys[12]
    assert expected_runner(LLAMACPP, 1, 5).device == "GPU: made up, 5 layers"
    assert len(set(keys.values())) == 3
