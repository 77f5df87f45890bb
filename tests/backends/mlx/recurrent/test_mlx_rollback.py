"""Running states of MLX taken back: the logits are those of a context that never ran the rest."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import Context, Logits, ModelError, Warping
from backends.mlx import running_state as recorded_mixers
from backends.mlx.model import MlxModel
from tests.fixtures.mlx_models import HYBRIDS, N_VOCAB
from tests.fixtures.tiny.taken_back import DRAFT, PROMPT, THEN, expected, rows_after

SmallMlx = Callable[..., Path]
GREEDY = Warping(0.0, 0, 1.0, 0.0)

ROUNDING = 1e-4
"""Passes of other lengths add up in another order; measured: 3e-6 of logits of the order of 2, and
0 but for the state space model."""

RERUN = [(kind, True) for kind in (*HYBRIDS, "parallel")]
READ_AGAIN = [("deltanet", False), ("rwkv", True)]
"""The ways back: scans that are run again, and tokens that are read again."""


@pytest.fixture(
    params=[*RERUN, *READ_AGAIN], ids=lambda case: case[0] if case[1] else f"{case[0]} read again"
)
def model(request: pytest.FixtureRequest, small_mlx: SmallMlx) -> Iterator[MlxModel]:
    kind, reruns = request.param
    with pytest.MonkeyPatch.context() as patch:
        if not reruns:
            patch.setattr(recorded_mixers, "is_mixer", lambda module: False)
        with closing(mlx.load(small_mlx(kind))) as loaded:
            yield loaded


@pytest.fixture
def context(model: MlxModel) -> Iterator[Context]:
    with closing(model.open(512)) as context:
        yield context


def near(some: Logits, others: Logits) -> bool:
    return bool(np.abs(some - others).max() < ROUNDING)


def test_the_longest_pass_is_taken_back_whole(model: MlxModel, context: Context) -> None:
    text = np.random.default_rng(0).integers(3, N_VOCAB, context.max_logits).tolist()
    for kept in (context.max_logits - 1, 20, 1):
        context.truncate(0)
        context.forward(PROMPT, 0)
        context.forward(text, len(text))
        context.truncate(len(PROMPT) + kept)
        assert near(rows_after(context), expected(model, [*PROMPT, *text[:kept]]))


def test_what_was_taken_back_can_be_cut_further(model: MlxModel, context: Context) -> None:
    context.forward(PROMPT, 0)
    context.forward(DRAFT, len(DRAFT))
    for kept in (6, 6, 2, 1, 0):
        context.truncate(len(PROMPT) + kept)
    assert near(rows_after(context), expected(model, PROMPT))


def judged(context: Context, tokens: list[int], drafted: list[int]) -> tuple[int, int]:
    device = context.device_sampling
    assert device is not None
    return device.verify(tokens, drafted, None, GREEDY, np.full(1 + len(drafted), 0.5))


def test_plain_steps_of_the_device_are_those_of_passes(model: MlxModel, context: Context) -> None:
    context.forward(PROMPT[:-1], 0)
    history = list(PROMPT)
    for _ in range(5):
        _, token = judged(context, history[-1:], [])
        history.append(token)
    assert list(context.tokens) == history[:-1]
    assert near(expected(model, history[:-1]), rows_after(context))


def test_what_the_device_drafts_is_taken_back(model: MlxModel, context: Context) -> None:
    device = context.device_sampling
    assert device is not None
    context.forward(PROMPT[:-1], 0)
    context.checkpoint(is_brief=True)
    drawn = device.draft(PROMPT[-1:], GREEDY, np.full(4, 0.5), N_VOCAB)
    text = [*PROMPT, *drawn.tokens[:-1]]
    assert list(context.tokens) == text
    assert context.rollback_to(len(text) - 2) == len(PROMPT) - 1
    context.truncate(len(PROMPT) - 1)
    assert judged(context, PROMPT[-1:], list(drawn.tokens)) == (
        4,
        int(expected_row(model, [*PROMPT, *drawn.tokens]).argmax()),
    )


def expected_row(model: MlxModel, text: Sequence[int]) -> Logits:
    with closing(model.open(512)) as context:
        return context.forward(text, 1)[0].copy()


def test_a_failed_pass_leaves_an_empty_context(
    model: MlxModel, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.forward(PROMPT, 0)
    context.checkpoint()
    context.forward(DRAFT, len(DRAFT))

    def fail(*_arguments: object) -> None:
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr("backends.mlx.context.evaluate", fail)
        with pytest.raises(ModelError, match="could not process"):
            context.forward(DRAFT, 1)
    assert context.length == context.rollback_to(5) == 0
    context.forward(PROMPT, 0)
    assert near(rows_after(context), expected(model, PROMPT))


def test_scans_are_run_again_where_they_can(small_mlx: SmallMlx) -> None:
    """Weights are then not read again: a rollback computes no projection."""
    for kind, reruns in (*RERUN, ("rwkv", False)):
        with closing(mlx.load(small_mlx(kind))) as model, closing(model.open(512)) as context:
            passes: list[int] = []
            run = context._logits  # pyright: ignore[reportPrivateUsage]

            def counted(tokens: Any, caches: Any, run: Any = run) -> Any:
                passes.append(tokens.size)  # noqa: B023
                return run(tokens, caches)

            context._logits = counted  # pyright: ignore[reportPrivateUsage]
            context.forward(PROMPT, 0)
            context.truncate(4)
            assert passes == ([len(PROMPT)] if reruns else [len(PROMPT), 4])


def test_a_state_that_is_changed_beside_the_mixers_is_read_again(
    small_mlx: SmallMlx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan run again would leave out what a layer did to the state after it."""
    from mlx_lm.models.lfm2 import Lfm2DecoderLayer

    plain = Lfm2DecoderLayer.__call__

    def leaking(self: Any, x: Any, mask: Any = None, cache: Any = None) -> Any:
        made = plain(self, x, mask, cache)
        if not self.is_attention_layer:
            cache[0] = cache[0] * 0.9
        return made

    monkeypatch.setattr(Lfm2DecoderLayer, "__call__", leaking)
    with closing(mlx.load(small_mlx("hybrid"))) as model, closing(model.open(512)) as context:
        context.forward(PROMPT, 0)
        context.forward(DRAFT, len(DRAFT))
        context.truncate(len(PROMPT) + 3)
        rows = rows_after(context)
        with closing(model.open(512)) as other:
            other.forward(PROMPT, 0)
            other.forward(DRAFT[:3], 0)
            assert near(rows, rows_after(other))


def test_what_is_recorded_is_freed_with_the_next_pass(small_mlx: SmallMlx) -> None:
    with closing(mlx.load(small_mlx("deltanet"))) as model, closing(model.open(512)) as context:
        context.forward(PROMPT, 0)
        sizes: list[int] = []
        for _ in range(6):
            context.forward([5, *DRAFT], 8)
            context.truncate(context.length - 3)
            context.forward(THEN, 2)
            sizes.append(mx.get_active_memory())
        assert sizes[0] > context.state_bytes // 2
        assert max(sizes) - min(sizes) < context.state_bytes // 2


def test_closed_models_leave_nothing(small_mlx: SmallMlx) -> None:
    """Nor do they wait for a collection of cycles: weights may fill most of the memory."""
    folder = small_mlx("deltanet")
    sizes: list[int] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            with closing(mlx.load(folder)) as model:
                context = model.open(64)
                context.forward(PROMPT, 1)
                context.checkpoint()
                context.truncate(8)
                context.forward(DRAFT, len(DRAFT))
            del model, context
            sizes.append(mx.get_active_memory())
    finally:
        gc.enable()
    assert max(sizes[1:]) - min(sizes[1:]) < 1000
