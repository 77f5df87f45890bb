"""Whatever becomes of a GPU, the engine answers: with fewer layers there, or on the processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Loaded, Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import DeviceLostError, ModelError, UsageError
from backends.engines import proof_process
from tests.fixtures import fake_gpu
from tests.fixtures.damaged_gguf import good_parts, set_number, written
from tests.fixtures.fake_gpu import FAULT, GPU, LARGEST, NO_KERNELS, in_a_process
from tests.fixtures.sessions import GREEDY, conversation

pytestmark = pytest.mark.slow

NEXT_START = "the GPU is not used until the next start: "
MOST = 20


def asked(engine: Engine, most: int = MOST, program: str = "") -> Answer:
    return engine.ask(
        Request(conversation("Tell me about the sea."), GREEDY, most, program=program)
    )


def answered(engine: Engine) -> str:
    answer = asked(engine)
    assert answer.wait(120)
    assert answer.error is None, answer.error
    return answer.text


def loaded(engine: Engine) -> Loaded:
    assert engine.status.loaded is not None
    return engine.status.loaded


@contextmanager
def engine_on_a_gpu(
    path: Path, gpu_layers: int | None = None, draft: str = "off", *, is_there: bool = True
) -> Iterator[Engine]:
    if is_there:
        fake_gpu.install()
        proof_process._WORKER = "tests.fixtures.fake_gpu"
    paths = Paths.of_this_user()
    paths.proofs.unlink(missing_ok=True)
    options = SessionOptions(str(path), draft, gpu_layers=gpu_layers, threads=1, ctx=512)
    engine = Engine(replace(options, parallel=None if draft == "off" else 4), paths)
    engine.start()
    yield engine
    assert engine.close(60)


def lose_it_in_mid_answer(path: Path) -> None:
    with engine_on_a_gpu(path, draft="lookup") as engine:
        whole = answered(engine)
        assert loaded(engine).info.device == "GPU: RTX of paper"
        answers = [asked(engine, program=program) for program in ("", "one", "two")]

        def lose() -> None:
            if len(answers[0].reply.token_ids) > 4:
                GPU.fault = "unspecified launch failure"

        answers[0].listen(lose)
        assert all(answer.wait(120) for answer in answers)
        ended = [answer for answer in answers if answer.error is not None]
        assert answers[0] in ended
        for answer in ended:
            assert isinstance(answer.error, DeviceLostError)
            assert answer.error.why == "CUDA error: unspecified launch failure"
            assert whole.startswith(answer.text), "what was said is kept"
        assert answers[0].text
        passes = GPU.passes
        assert answered(engine) == whole
        assert loaded(engine).info.device.startswith("CPU")
        assert loaded(engine).notes[0] == f"{NEXT_START}CUDA error: unspecified launch failure"
        engine.load(str(path))
        assert answered(engine) == whole
        assert GPU.passes == passes
        assert (engine.status.phase, engine.status.error) == (Phase.READY, None)


def test_a_gpu_lost_in_mid_answer_ends_the_answers_and_the_next_ones_are_the_processors(
    demo_file: Path,
) -> None:
    in_a_process(lose_it_in_mid_answer, demo_file)


def begin_with_a_fault(path: Path, cause: str, gpu_layers: int | None) -> None:
    with engine_on_a_gpu(path, gpu_layers) as engine:
        assert answered(engine)
        assert loaded(engine).info.device.startswith("CPU")
        (note,) = loaded(engine).notes
        assert note.startswith(f"{NEXT_START}{cause}")
        assert GPU.passes == 0, "it was found out in a child"


@pytest.mark.parametrize(
    ("fault", "cause", "gpu_layers"),
    [
        (NO_KERNELS, f"CUDA error: {NO_KERNELS}; `specchat build cuda` makes", None),
        ("crash", "its process ended with ", 20),
    ],
)
def test_a_gpu_that_fails_from_the_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch, demo_file: Path, fault: str, cause: str, gpu_layers: int | None
) -> None:
    monkeypatch.setenv(FAULT, fault)
    in_a_process(begin_with_a_fault, demo_file, cause, gpu_layers)


def answer_where(path: Path, is_there: bool) -> None:
    with engine_on_a_gpu(path, draft="auto", is_there=is_there) as engine:
        assert answered(engine)
        assert loaded(engine).info.device.startswith("GPU" if is_there else "CPU")
        assert not any(NEXT_START in note for note in loaded(engine).notes)
    if not is_there:
        with engine_on_a_gpu(path, gpu_layers=20, is_there=False) as engine:
            answer = asked(engine)
            assert answer.wait(120)
            assert isinstance(answer.error, UsageError)
            assert "llama.cpp runs on the processor alone here" in answer.error.why


def test_a_gpu_that_is_gone_at_the_next_start_leaves_nothing_that_misleads(demo_file: Path) -> None:
    for is_there in (True, False):
        in_a_process(answer_where, demo_file, is_there)


def begin_with_little_memory(path: Path, crashing: Path) -> None:
    with engine_on_a_gpu(path) as engine:
        assert answered(engine)
        told = loaded(engine)
        assert told.notes[0].startswith(f"less of {path.name} is on the GPU than planned: unable")
        assert 0 < (told.info.gpu_layers or 0) < 20
        assert "layers on the GPU" in told.notes[1]
        engine.load(str(crashing))
        answer = asked(engine)
        assert answer.wait(120)
        assert answer.error is None, "the model before it answers"
        assert isinstance(engine.status.error, ModelError)
        assert "crashing.gguf stops the engine" in engine.status.error.what
        assert not isinstance(engine.status.error, DeviceLostError), "it was the file's fault"
        assert loaded(engine).info.device.startswith("GPU")


def test_where_a_gpu_lacks_memory_it_gets_fewer_layers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, demo_file: Path
) -> None:
    parts = good_parts(tmp_path / "good", "qwen2")
    set_number(parts, "rope.dimension_count", 4)
    monkeypatch.setenv(LARGEST, "72000000")
    crashing = written(tmp_path, parts, "crashing.gguf")
    in_a_process(begin_with_little_memory, demo_file, crashing)
