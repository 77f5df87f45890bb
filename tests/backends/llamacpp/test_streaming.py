"""A model that streams from disk answers as one in memory, and can be stopped in a pass."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, Model, ModelError, PassStoppedError, UsageError
from backends.base.model import stopping_passes
from backends.engines import model_loading
from backends.streaming import mapped_file, memory_pages, streamed_weights

LOCKED = 40_000_000


@pytest.fixture(scope="module")
def in_memory(demo_file: Path) -> Iterator[Model]:
    """On the processor, where streamed layers are too."""
    model = llamacpp.load(demo_file, gpu_layers=0)
    yield model
    model.close()


@pytest.fixture(scope="module")
def streamed(demo_file: Path) -> Iterator[Model]:
    model = llamacpp.load(demo_file, lock_bytes=LOCKED)
    yield model
    model.close()


def greedy(context: Context, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    """Ids of a greedy answer, and the logits of its last."""
    rows, ids = context.forward(prompt, 1), list[int]()
    for _ in range(count):
        ids.append(int(rows[0].argmax()))
        rows = context.forward(ids[-1:], 1)
    return ids, rows.copy()


@pytest.mark.slow
def test_logits_are_those_of_the_model_in_memory(in_memory: Model, streamed: Model):
    prompt = in_memory.tokenizer.encode("The old lighthouse keeper said that", special=False)
    contexts = [model.open(256) for model in (in_memory, streamed)]
    (ids, rows), (streamed_ids, streamed_rows) = (greedy(one, prompt, 24) for one in contexts)
    assert streamed_ids == ids
    assert np.array_equal(streamed_rows, rows)
    for context in contexts:
        context.close()


def test_a_tree_streams_as_well(in_memory: Model, streamed: Model):
    prompt = in_memory.tokenizer.encode("One, two, three, four,", special=False)
    rows: list[np.ndarray] = []
    for model in (in_memory, streamed):
        context = model.open(256)
        context.forward(prompt, 0)
        rows.append(context.forward_tree([5, 6, 7, 8], [-1, 0, 0, 2]).copy())
        context.close()
    assert np.array_equal(rows[0], rows[1])


def test_the_model_tells_what_it_holds_and_what_it_reads(demo: Model, streamed: Model):
    info = streamed.info
    if not info.lock_refusal:
        assert 0.9 * LOCKED < info.locked_bytes <= LOCKED
    assert info.locked_bytes <= LOCKED
    if mapped_file.CAN_DROP:
        assert info.streamed_bytes_per_token == pytest.approx(
            info.bytes_read_per_token - LOCKED, rel=0.1
        )
    assert demo.info.streamed_bytes_per_token == demo.info.locked_bytes == 0


@pytest.mark.slow
def test_more_or_less_is_held_from_now_on(in_memory: Model, demo_file: Path):
    model = llamacpp.load(demo_file, lock_bytes=LOCKED)
    prompt = in_memory.tokenizer.encode("The old lighthouse keeper said that", special=False)
    whole, context = in_memory.open(256), model.open(256)
    expected, _ = greedy(whole, prompt, 12)
    ids, rows = greedy(context, prompt, 4)
    for held in (0, LOCKED // 2, 1 << 40):
        model_loading.hold(model, held)
        info = model.info
        assert info.locked_bytes <= held
        if mapped_file.CAN_DROP:
            rest = max(info.bytes_read_per_token - held, 0)
            assert info.streamed_bytes_per_token == pytest.approx(rest, rel=0.1)
        for _ in range(2):
            ids.append(int(rows[0].argmax()))
            rows = context.forward(ids[-1:], 1)
    assert ids == expected[: len(ids)]
    model.close()
    whole.close()


def test_refused_locks_are_told_and_the_model_runs(
    demo_file: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_address: int, _size: int) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(memory_pages, "lock", refuse)
    model = llamacpp.load(demo_file, lock_bytes=LOCKED)
    assert model.info.locked_bytes == 0
    assert model.info.lock_refusal
    assert model.open(64).forward([1, 2, 3], 1).shape == (1, model.info.n_vocab)
    model.close()


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_stopped_pass_leaves_the_context_as_it_was(streamed: Model, is_tree: bool):
    context = streamed.open(256)
    expected = context.forward([1, 2, 3, 4], 1).copy()
    context.truncate(3)
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 100

    def run() -> None:
        if is_tree:
            context.forward_tree([4, 5], [-1, -1])
        else:
            context.forward(list(range(40)), 1)

    with pytest.raises(PassStoppedError), stopping_passes(is_stopped):
        run()
    assert asked == 101
    assert context.tokens == [1, 2, 3]
    again = context.forward([4], 1)
    assert again.argmax() == expected.argmax()
    assert np.allclose(again, expected, atol=0.1)  # it was computed alone now
    context.close()


def test_a_pass_in_memory_is_not_asked(demo: Model):
    context = demo.open(64)
    with stopping_passes(lambda: True):
        assert context.forward([1, 2], 1).shape[0] == 1
    context.close()


def test_a_file_cut_short_ends_the_answer_and_not_the_process(demo_file: Path, tmp_path: Path):
    path = tmp_path / "copy.gguf"
    shutil.copyfile(demo_file, path)
    model = llamacpp.load(path, lock_bytes=LOCKED)
    context = model.open(64)
    context.forward([1, 2], 1)
    os.truncate(path, 1_000_000)
    with pytest.raises(ModelError, match="was changed while the model ran"):
        context.forward([3], 1)
    assert context.tokens == [1, 2]
    model.close()


@pytest.mark.parametrize("happens", ["cut", "overwritten"])
@pytest.mark.parametrize("is_tree", [False, True])
def test_a_file_that_changes_within_a_pass_ends_it_with_words(
    demo_file: Path, tmp_path: Path, happens: str, is_tree: bool
):
    if happens == "cut" and sys.platform != "linux":
        pytest.skip("reading what was cut off ends the process")
    path = tmp_path / "copy.gguf"
    shutil.copyfile(demo_file, path)
    model = llamacpp.load(path, lock_bytes=LOCKED)
    context = model.open(64)
    context.forward([1, 2], 1)
    asked = 0

    def change() -> bool:  # after each operation; never stops the pass itself
        nonlocal asked
        asked += 1
        if asked == 100 and happens == "cut":
            os.truncate(path, 1_000_000)
        elif asked == 100:
            with path.open("r+b") as file:
                file.seek(50_000_000)
                file.write(bytes(8))
        return False

    with (
        pytest.raises(ModelError, match="was changed while the model ran"),
        stopping_passes(change),
    ):
        context.forward_tree([3, 4], [-1, -1]) if is_tree else context.forward([3], 1)
    assert asked >= 100
    assert context.tokens == [1, 2]
    with pytest.raises(ModelError, match="was changed while the model ran"):
        context.forward([3], 1)
    model.close()


def test_locks_are_let_go_within_a_pass_and_it_is_told(
    demo_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streamed_weights, "_SECONDS_BETWEEN_LOOKS", 0)
    model = llamacpp.load(demo_file, lock_bytes=LOCKED)
    context = model.open(64)
    expected = context.forward([1, 2], 1).copy()
    assert model.shortage == ""
    context.truncate(0)
    asked = 0

    def take_memory() -> bool:
        nonlocal asked
        asked += 1
        if asked == 100:
            monkeypatch.setattr(streamed_weights, "available_memory", lambda: 0)
        return False

    with stopping_passes(take_memory):
        rows = context.forward([1, 2], 1)
    assert np.array_equal(rows, expected)
    if model.info.locked_bytes:
        assert "other programs need memory" in model.shortage
    model.close()


def test_a_gpu_and_mlx_are_refused(
    demo_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("backends.llamacpp.library.can_offload", lambda: False)
    with pytest.raises(UsageError, match="--gpu-layers 5"):
        llamacpp.load(demo_file, gpu_layers=5, lock_bytes=LOCKED)
    with pytest.raises((UsageError, ModelError)):
        model_loading.load(tmp_path, None, None, "mlx", lock_bytes=LOCKED)
