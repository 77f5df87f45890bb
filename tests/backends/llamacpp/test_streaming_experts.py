"""A mixture of experts that streams, and itself with fewer experts, answer as in memory."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Logits, Model, PassStoppedError
from backends.streaming.streamed_weights import StreamedWeights
from backends.streaming.weight_plan import Role, lock_plan, weight_layout

PROMPT = list(range(40, 60))
EXPERTS = (8, 2)
LAYERS = 3


@pytest.fixture
def file(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama(layers=LAYERS, experts=EXPERTS)


@pytest.fixture
def held(file: Path) -> int:
    """Bytes that hold what all tokens need, and about half of the experts."""
    layout = weight_layout(file)
    shared = sum(one.extent.size for one in layout.tensors if one.role == Role.SHARED)
    return shared + (layout.weight_bytes - shared) // 2


@pytest.fixture
def streamed(file: Path, held: int) -> Iterator[Model]:
    with closing(llamacpp.load(file, threads=1, lock_bytes=held)) as model:
        yield model


def answer(model: Model, count: int = 12) -> tuple[list[int], Logits]:
    """Ids of a greedy answer, and the logits of its last."""
    with closing(model.open(64)) as context:
        rows, ids = context.forward(PROMPT, 1), list[int]()
        for _ in range(count):
            ids.append(int(rows[0].argmax()))
            rows = context.forward(ids[-1:], 1)
        return ids, rows.copy()


def whole(file: Path, experts: int | None = None) -> tuple[list[int], Logits]:
    """The answer of a model in memory whose weights are not rearranged, as those of streams."""
    with closing(llamacpp.load(file, threads=1, experts=experts, lock_bytes=1 << 40)) as model:
        return answer(model)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_its_answers_are_those_in_memory(file: Path, share: float) -> None:
    budget = round(share * weight_layout(file).weight_bytes)
    with (
        closing(llamacpp.load(file, threads=1, gpu_layers=0)) as model,
        closing(llamacpp.load(file, threads=1, lock_bytes=budget)) as streamed,
    ):
        (ids, rows), (streamed_ids, streamed_rows) = answer(model), answer(streamed)
    assert streamed_ids == ids
    np.testing.assert_array_equal(streamed_rows, rows)


def test_it_tells_what_a_token_reads(file: Path, held: int, streamed: Model) -> None:
    plan = lock_plan(weight_layout(file), held)
    assert plan.shared_bytes == 0
    assert plan.expert_bytes > 0
    assert streamed.info.expert_share == EXPERTS[1] / EXPERTS[0]
    assert streamed.info.streamed_bytes_per_token == plan.read_bytes()


def test_fewer_experts_draft_from_the_weights_that_are_held(file: Path, streamed: Model) -> None:
    expected, fewer = whole(file), whole(file, experts=1)
    assert isinstance(streamed, llamacpp.LlamaModel)
    drafter = llamacpp.load(file, threads=1, experts=1, beside=streamed)
    assert drafter.streamed_weights is streamed.streamed_weights
    assert drafter.info.streamed_bytes_per_token == pytest.approx(
        streamed.info.streamed_bytes_per_token / 2, abs=1
    )
    for _ in range(2):
        assert answer(drafter)[0] == fewer[0]
        assert answer(streamed)[0] == expected[0]
    drafter.close()
    ids, rows = answer(streamed)
    assert ids == expected[0]
    np.testing.assert_array_equal(rows, expected[1])


def test_a_drafter_outlives_its_target_harmlessly(file: Path, held: int) -> None:
    streamed = llamacpp.load(file, threads=1, lock_bytes=held)
    drafter = llamacpp.load(file, threads=1, experts=1, beside=streamed)
    streamed.close()
    drafter.close()


def told(
    model: Model, passes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> list[dict[int, set[int]]]:
    """Experts that were told in each pass, by layer."""
    found: list[dict[int, set[int]]] = []

    def choose(_self: StreamedWeights, layer: int, experts: set[int]) -> None:
        assert layer not in found[-1]
        found[-1][layer] = experts

    monkeypatch.setattr(StreamedWeights, "choose", choose)
    with closing(model.open(64)) as context:
        for tokens in passes:
            found.append({})
            context.forward(tokens, 1)
    return found


def test_a_pass_tells_the_experts_of_all_its_tokens(
    streamed: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = told(streamed, [[token] for token in PROMPT[:5]], monkeypatch)
    (together,) = told(streamed, [PROMPT[:5]], monkeypatch)
    for layer in range(LAYERS - 1):  # the last computes those tokens only whose logits are wanted
        assert all(len(one[layer]) == EXPERTS[1] for one in alone)
        assert together[layer] == set().union(*(one[layer] for one in alone))
    assert together[LAYERS - 1] == alone[-1][LAYERS - 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_pass_interrupted_between_layers_is_stopped_and_not_half_done(
    streamed: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = answer(streamed)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with closing(streamed.open(64)) as context, monkeypatch.context() as patched:
        patched.setattr(StreamedWeights, "choose", interrupt)
        with closing(streamed.open(64)) as broken, pytest.raises(PassStoppedError):
            broken.forward(PROMPT, 1)
        patched.undo()
        assert int(context.forward(PROMPT, 1)[0].argmax()) == expected[0]


def test_a_disk_that_refuses_to_read_ahead_changes_nothing(
    streamed: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = answer(streamed)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("backends.streaming.mapped_file.read_ahead", refuse)
    assert answer(streamed)[0] == expected
