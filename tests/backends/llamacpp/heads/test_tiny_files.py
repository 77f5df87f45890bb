"""The real engine runs every tiny file, each in a child process first."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.engines.backend_selection import LLAMACPP
from backends.files.gguf_header import read_header
from backends.proof.proof_process import CrashCheck, ProofProcess
from tests.fixtures.tiny.kinds import HEADS, MODELS, PREDICTING, Tiny

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def drafts(tiny: Tiny) -> dict[str, list[int] | str]:
    """What each head drafts after the same prompt, or why the engine refused it."""
    pairs = {kind: (tiny(target), tiny(kind)) for kind, (_, target) in HEADS.items()}
    pairs |= {kind: (tiny(kind), tiny(kind)) for kind in PREDICTING}
    lines = [json.dumps([str(file) for file in pair]) for pair in pairs.values()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.tiny.head_run"],
        input="\n".join(lines),
        cwd=ROOT,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(pairs, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.slow
def test_every_model_answers(tiny: Tiny) -> None:
    process = ProofProcess()
    for kind in MODELS:
        path = tiny(kind)
        process.prove(CrashCheck(path, LLAMACPP, threads=1), path.stat().st_size)
    process.close()


@pytest.mark.parametrize("kind", [*HEADS, *PREDICTING])
def test_every_head_drafts(drafts: dict[str, list[int] | str], kind: str) -> None:
    found = drafts[kind]
    assert isinstance(found, list), found
    assert len(found) == 3


def test_a_sidecar_drafts_what_the_whole_file_does(drafts: dict[str, list[int] | str]) -> None:
    assert drafts["qwen35-sidecar"] == drafts["qwen35"]


@pytest.mark.parametrize("kind", MODELS)
def test_greedy_tokens_are_not_all_the_same(tiny: Tiny, kind: str) -> None:
    model = llamacpp.load(tiny(kind), threads=1)
    context = model.open(128)
    token, said = 75, list[int]()
    for _ in range(16):
        token = int(context.forward([token], 1)[-1].argmax())
        said.append(token)
    model.close()
    assert len(set(said)) > 3


@pytest.mark.parametrize("kind", [*MODELS, *HEADS])
def test_a_file_is_small(tiny: Tiny, kind: str) -> None:
    assert tiny(kind).stat().st_size < 1_500_000
    assert read_header(tiny(kind)).tensors
