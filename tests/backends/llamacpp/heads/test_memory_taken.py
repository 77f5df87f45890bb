"""Memory that models and heads really take, against their bill: in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from models.metadata.memory_bill import bill, facts_of
from models.metadata.trained_drafters import head_facts
from tests.fixtures.tiny.heads import write_dflash, write_eagle3, write_gemma4_assistant
from tests.fixtures.tiny.models import write_dense, write_gemma4, write_qwen35
from tests.fixtures.tiny.tiny_file import Shape

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processor("a card has memory of its own, and a driver takes more here"),
    pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is told by Linux"),
]

N_CTX = 2048
SHAPE = Shape(
    width=1024,
    feed_forward=3072,
    heads=8,
    kv_heads=4,
    head=128,
    context=N_CTX,
    n_vocab=32_000,
    hollow=gguf.GGMLQuantizationType.F16,
)


def written(kind: str, folder: Path) -> tuple[Path, Path | None]:
    """A model and its head, of a kind."""
    model, head = folder / "model.gguf", folder / "head.gguf"
    match kind:
        case "qwen35":
            return write_qwen35(model, shape=SHAPE, state=128, rank=16), model
        case "eagle3":
            drafted = range(16_000)
            write_eagle3(
                head, target_width=SHAPE.width, own_embeddings=False, drafted=drafted, shape=SHAPE
            )
            return write_dense(model, shape=SHAPE), head
        case "dflash":
            write_dflash(head, shape=SHAPE)
            return write_dense(model, "qwen3", shape=SHAPE), head
        case "assistant":
            write_gemma4_assistant(head, target_width=SHAPE.width, shape=SHAPE)
            return write_gemma4(model, shape=SHAPE), head
        case _:
            return write_dense(model, shape=SHAPE), None


@pytest.mark.parametrize(
    "kind",
    [
        *("qwen35", "eagle3", "assistant"),
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("llama", "dflash")),
    ],
)
def test_a_bill_is_within_three_percent(kind: str, tmp_path: Path) -> None:
    model, head = written(kind, tmp_path)
    command = [sys.executable, "-m", "scripts.measure_memory", str(model)]
    command += [str(head)] if head else []
    done = subprocess.run(
        [*command, "--ctx", str(N_CTX)], capture_output=True, check=True, text=True
    )
    found = json.loads(done.stdout)
    facts = [facts_of(model), *([head_facts(head, model)] if head else [])]
    billed = sum(bill(one, N_CTX).total for one in facts)
    mapped = sum(one.weight_bytes for one in facts)
    assert billed == pytest.approx(mapped + found["taken"], rel=0.03)
