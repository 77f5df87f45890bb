"""What passes of MLX models leave for heads: the states of the text, whatever passes gave it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends import mlx
from backends.base import DraftUnavailableError, Warping
from backends.base.parent_array import path_to
from backends.heads.hidden_states import HiddenStates, Rows
from backends.mlx import running_state as recorded_mixers
from backends.mlx.context import MlxContext
from backends.mlx.heads.taps import add_final_states, add_layer_states, remove_states
from backends.mlx.layer_taps import tapped
from backends.mlx.model import MlxModel
from tests.fixtures.mlx_models import N_VOCAB, WINDOW

LAYERS = (0, 2, 1)
KINDS = ("plain", "sliding", "deltanet")
ROUNDING = 1e-4
"""Of numbers up to 4, in passes of other lengths."""

GREEDY = Warping(0.0, 0, 1.0, 0.0)


@pytest.fixture(params=[*KINDS, "deltanet read again"])
def model(request: pytest.FixtureRequest, small_mlx: Callable[..., Path]) -> Iterator[MlxModel]:
    kind, _, again = str(request.param).partition(" ")
    with pytest.MonkeyPatch.context() as patch:
        if again:
            patch.setattr(recorded_mixers, "is_mixer", lambda module: False)
        with closing(mlx.load(small_mlx(kind))) as loaded:
            yield loaded


@pytest.fixture
def context(model: MlxModel) -> Iterator[MlxContext]:
    with closing(model.open(256)) as context:
        yield context


def inputs(module: Any, tokens: Sequence[int]) -> list[Rows]:
    """What each layer is given over a whole text, and what the output layer is, by hand."""
    text = getattr(module, "language_model", module)
    hidden = text.model.embed_tokens(mx.array([list(tokens)]))
    found: list[Any] = []
    for layer in text.model.layers:
        found.append(hidden)
        mask = None
        if not getattr(layer, "is_linear", False):
            back = np.arange(len(tokens))[:, None] - np.arange(len(tokens))
            window = WINDOW if getattr(layer, "use_sliding", False) else len(tokens)
            mask = mx.array((back >= 0) & (back < window))
        hidden = layer(hidden, mask, None)
    found.append(text.model.norm(hidden))
    return [np.array(each[0]) for each in found]


def expected(model: MlxModel, tokens: Sequence[int], layers: Sequence[int]) -> Rows:
    found = inputs(model.module, tokens)
    return np.hstack([found[layer] for layer in layers])


def off(model: MlxModel, context: MlxContext, states: HiddenStates) -> float:
    """How far known rows of the text are from those of a whole pass over it."""
    assert states.end == context.length
    if states.first == states.end:
        return 0.0
    rows = expected(model, context.tokens, states.layers)[states.first : states.end]
    return float(np.abs(rows - states.rows(states.first, states.end)).max())


def test_rows_are_the_inputs_of_layers_side_by_side(model: MlxModel, context: MlxContext) -> None:
    states, final = add_layer_states(context, LAYERS), add_final_states(context)
    assert states.width == len(LAYERS) * final.width
    context.forward(list(range(40, 90)), 3)
    assert (states.first, states.end, final.end) == (0, 50, 50)
    assert off(model, context, states) < ROUNDING
    assert off(model, context, final) < ROUNDING
    assert np.abs(final.rows(0, 50)).max() > 0.5


def test_texts_are_told_apart(model: MlxModel) -> None:
    """Otherwise the comparisons would prove nothing."""
    text = list(range(40, 90))
    rows = [expected(model, each, LAYERS)[-1] for each in (text, [*text[:-2], 7, text[-1]])]
    layers = np.abs(rows[0] - rows[1]).reshape(len(LAYERS), -1).max(axis=1)
    assert layers[1:].min() > 10 * ROUNDING


@pytest.mark.parametrize("seed", range(2))
def test_rows_follow_the_text_through_passes_of_every_kind(
    model: MlxModel, context: MlxContext, seed: int
) -> None:
    random = np.random.default_rng(seed)
    states, final = add_layer_states(context, LAYERS), add_final_states(context)

    def tokens(most: int) -> list[int]:
        return random.integers(3, N_VOCAB, int(random.integers(1, most))).tolist()

    for _ in range(25):
        one_of = int(random.integers(5))
        if context.length > 200:
            context.truncate(0)
        elif one_of == 0:
            given = tokens(30)
            context.forward(given, int(random.integers(0, len(given) + 1)))
        elif one_of == 1:
            verify(context, tokens(3), tokens(6), random)
        elif one_of == 2 and context.can_verify_tree and context.length:
            tree(context, tokens(8), random)
        elif one_of == 3 and context.length:
            foresee(context, int(random.integers(3)), random)
        elif one_of == 4 and context.length:
            context.checkpoint()
            context.forward(tokens(4), 1)
            context.truncate(context.rollback_to(int(random.integers(0, context.length + 1))))
        for each in (states, final):
            assert off(model, context, each) < ROUNDING


def verify(
    context: MlxContext, tokens: list[int], drafted: list[int], random: np.random.Generator
) -> None:
    """Judge a draft on the device and keep what is accepted, or some of the rest by force."""
    assert context.device_sampling is not None
    start = context.length
    uniforms = np.full(len(drafted) + 1, 0.5)
    context.device_sampling.verify(tokens, drafted, None, GREEDY, uniforms)
    kept = int(random.integers(len(drafted) + 1))
    context.truncate(start + len(tokens) + kept)


def tree(context: MlxContext, tokens: list[int], random: np.random.Generator) -> None:
    parents = [int(random.integers(-1, node)) for node in range(len(tokens))]
    half = len(tokens) // 2
    if half:
        context.forward_tree(tokens[:half], parents[:half])
        context.grow_tree(tokens[half:], parents[half:])
    else:
        context.forward_tree(tokens, parents)
    if random.integers(4):
        context.commit(path_to(int(random.integers(-1, len(tokens))), parents))
    else:
        context.forward([5], 1)  # which drops it


def foresee(context: MlxContext, then: int, random: np.random.Generator) -> None:
    """Steps without a draft, whose next pass is prepared: taken, or dropped in two ways."""
    assert context.device_sampling is not None
    token = int(random.integers(3, N_VOCAB))
    for _ in range(3):
        _, token = context.device_sampling.verify([token], [], None, GREEDY, np.array([0.5]))
    if then == 1:
        context.forward([5, 6], 1)
    elif then == 2:
        context.truncate(context.length - 1)


def test_a_restored_state_has_no_rows_and_those_after_it_do(
    model: MlxModel, context: MlxContext
) -> None:
    context.forward(list(range(40, 60)), 0)
    saved, tokens = context.save(), list(context.tokens)
    states = add_final_states(context)
    assert states.first == states.end == 20
    context.truncate(0)
    context.restore(tokens, saved)
    context.forward([5, 6, 7], 1)
    assert (states.first, states.end) == (20, 23)
    assert off(model, context, states) < ROUNDING


def test_logits_are_the_same_with_a_head_and_without(model: MlxModel, context: MlxContext) -> None:
    text = list(range(40, 60))
    plain = context.forward(text, 4).copy()
    context.truncate(0)
    states = add_layer_states(context, LAYERS)
    assert (context.forward(text, 4) == plain).all()
    remove_states(context, states)
    context.truncate(0)
    assert (context.forward(text, 4) == plain).all()
    assert states.first == states.end, "its rows are freed"


def test_nothing_is_left_without_a_head(context: MlxContext) -> None:
    """The model runs as it is, not as a view."""
    module = context.model
    context.forward([40, 41], 1)
    assert not context.unread
    states = add_final_states(context)
    context.forward([42, 43], 1)
    assert not context.unread, "rows are counted in"
    remove_states(context, states)
    context.forward([44, 45], 1)
    assert context.model is module
    assert not context.unread


def test_a_prepared_pass_from_before_a_head_is_run_again_for_it(
    model: MlxModel, context: MlxContext
) -> None:
    assert context.device_sampling is not None
    context.forward([40, 41], 0)
    _, token = context.device_sampling.verify([42], [], None, GREEDY, np.array([0.5]))
    states = add_final_states(context)
    context.device_sampling.verify([token], [], None, GREEDY, np.array([0.5]))
    assert (states.first, states.end) == (3, 4)
    assert off(model, context, states) < ROUNDING


def test_a_failed_pass_leaves_no_rows(context: MlxContext, monkeypatch: pytest.MonkeyPatch) -> None:
    states = add_final_states(context)
    context.forward([40, 41], 0)
    with monkeypatch.context() as patch:
        patch.setattr(mx, "eval", _fail)
        with pytest.raises(Exception, match="could not process"):
            context.forward([42, 43], 1)
    assert (context.length, states.end) == (0, 0)
    context.forward([44], 1)
    assert (states.first, states.end) == (0, 1)


def _fail(*arrays: object) -> None:
    raise RuntimeError("no more memory")


@pytest.mark.parametrize("layer", [-1, 99])
def test_layers_that_a_model_does_not_have_are_refused(context: MlxContext, layer: int) -> None:
    with pytest.raises(DraftUnavailableError, match="layer"):
        add_layer_states(context, (0, layer))
    context.forward([40], 1)


def test_nodes_of_a_tree_that_failed_are_forgotten(
    model: MlxModel, context: MlxContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not context.can_verify_tree:
        pytest.skip("a running state follows one line")
    states = add_final_states(context)
    context.forward([40, 41], 0)
    context.forward_tree([50, 51], [-1, -1])
    with monkeypatch.context() as patch:
        patch.setattr(mx, "eval", _fail)
        with pytest.raises(Exception, match="could not process"):
            context.grow_tree([52], [0])
    context.forward([40, 41], 0)
    context.forward_tree([60, 61, 62], [-1, 0, -1])
    context.commit([0, 1])
    assert list(context.tokens) == [40, 41, 60, 61]
    assert off(model, context, states) < ROUNDING


def test_layers_keep_their_kind_in_a_view(context: MlxContext) -> None:
    """olmo_hybrid chooses a layer's mask by its class: another one would see later tokens."""
    states = add_layer_states(context, LAYERS)
    layers = context.model.layers or []
    view = tapped(context.model, set(LAYERS), lambda *_: None)
    assert all(isinstance(one, type(own)) for one, own in zip(view.layers, layers, strict=True))
    assert [one is own for one, own in zip(view.layers, layers, strict=True)].count(False) > 0
    remove_states(context, states)
