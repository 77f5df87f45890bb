"""An assistant of Gemma 4 reads nothing but its model's cache, as far as that goes."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.base import Context, Logits, ModelError, Warping
from decoding.drafters.draft_model import DraftModel
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.tiny.assistant_reference import AssistantReference
from tests.fixtures.tiny.mlx_pairs import N_CTX, Assisted, TwinPair, opened
from tests.fixtures.tiny.models import WINDOW

PROMPT = [1, 75, 300, 299, 310, 75, 98, 112, 130, 7, 42]
DRAFT = [130, 201, 299, 305]
LAST = 305
GREEDY = Warping(0.0, 0, 1.0, 0.0)

ROUNDING = 1e-4
"""Passes of other lengths add up in another order; measured below 1e-5 of logits of
the order of 1."""


@pytest.fixture
def pair(assisted: Assisted) -> Iterator[TwinPair]:
    with opened(*assisted()) as found:
        yield found


def rows_after(drafts: Context, read: Sequence[int], tokens: Sequence[int]) -> Logits:
    """Logits after each of some tokens that follow what the model has read."""
    return drafts.forward([*read, *tokens], len(tokens)).copy()


def near(some: Any, others: Any) -> bool:
    return bool(np.abs(some - others).max() < ROUNDING)


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, len(PROMPT), 40])
@pytest.mark.parametrize("shared_layers", [0, 2])
def test_drafts_are_those_of_the_plain_formulas(
    assisted: Assisted, length: int, shared_layers: int
) -> None:
    """Within a window and past it, and of models whose last layers share keys and values."""
    folders = assisted(num_kv_shared_layers=shared_layers)
    text = (PROMPT * 4)[:length]
    with opened(*folders) as pair:
        pair.context.forward(text, 1)
        found = rows_after(pair.drafts, text, [LAST, *DRAFT])
        plain = AssistantReference(folders.assistant, pair.model.module)
        assert near(found, plain.rows(text, [LAST, *DRAFT]))
        assert not near(found, plain.rows([*text[:-1], 9], [LAST, *DRAFT])), "it reads the text"


@pytest.mark.parametrize("seed", range(3))
def test_random_acceptance_leaves_nothing_stale(
    pair: TwinPair, assisted: Assisted, seed: int
) -> None:
    """Drafts of every length, of which nothing, a part or all is kept, past the window."""
    random = np.random.default_rng(seed)
    plain = AssistantReference(assisted().assistant, pair.model.module)
    pair.context.forward(PROMPT, 1)
    text = list(PROMPT)
    drafter = DraftModel("assistant", pair.drafts, n_vocab=pair.model.info.n_vocab, max_draft=8)
    drafter.begin(text, Sampler(SamplingSettings(temperature=0.0)))
    for _ in range(20):
        last = int(random.integers(3, 300))
        text.append(last)
        draft = list(drafter.propose(text, int(random.integers(1, 9))).tokens)
        expected = plain.rows(text[:-1], [last, *draft[:-1]])
        assert expected.argmax(-1).tolist() == draft
        kept = int(random.integers(0, len(draft) + 1))
        pair.context.forward([last, *draft], 1 + len(draft))
        text += draft[:kept]
        pair.context.truncate(len(text))
        drafter.commit(text)


def test_the_device_draws_what_passes_of_the_host_do(pair: TwinPair) -> None:
    by_host = pair.head.open_beside(pair.context)
    pair.context.forward(PROMPT, 1)
    device = pair.drafts.device_sampling
    assert device is not None
    uniforms, n_vocab = np.random.default_rng(0).random(6), pair.model.info.n_vocab
    for warping in (GREEDY, Warping(1.0, 5, 0.95, 0.0)):
        pair.drafts.truncate(0)
        drawn = device.draft([*PROMPT, LAST], warping, uniforms, n_vocab)
        text = [*PROMPT, LAST, *drawn.tokens[:-1]]
        assert list(pair.drafts.tokens) == text
        more = device.draft(drawn.tokens[-1:], warping, uniforms[:2], n_vocab)
        by_host.truncate(0)
        rows = rows_after(by_host, PROMPT, [LAST, *drawn.tokens, *more.tokens[:-1]])
        for row, drawn_row in zip(rows, (*drawn.rows, *more.rows), strict=True):
            q_draft = drawn_row.probabilities()
            assert q_draft[row.argmax()] == q_draft.max()
            if warping is not GREEDY:
                likely = np.exp(row - row.max()) * (q_draft > 0)
                assert np.abs(likely / likely.sum() - q_draft).max() < ROUNDING


def test_a_draft_waits_for_the_device_once(pair: TwinPair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.context.forward(PROMPT, 1)
    device = pair.drafts.device_sampling
    assert device is not None
    waits: list[int] = []
    compute = mx.eval

    def counted(*arrays: Any) -> None:
        waits.append(len(arrays))
        compute(*arrays)

    monkeypatch.setattr(mx, "eval", counted)
    drawn = device.draft([*PROMPT, LAST], GREEDY, np.full(4, 0.5), pair.model.info.n_vocab)
    device.draft(drawn.tokens[-1:], GREEDY, np.full(2, 0.5), pair.model.info.n_vocab)
    assert len(waits) == 2


def test_after_a_plain_step_of_the_device_it_reads_what_the_model_has_read(pair: TwinPair) -> None:
    """A pass that the model has prepared is dropped: it would be computed to read the cache."""
    device = pair.context.device_sampling
    assert device is not None
    pair.context.forward(PROMPT, 1)
    _, token = device.verify([LAST], [], None, GREEDY, np.full(1, 0.5))
    assert pair.context._next is not None  # pyright: ignore[reportPrivateUsage]
    found = rows_after(pair.drafts, [*PROMPT, LAST], [token, *DRAFT])
    assert pair.context._next is None  # pyright: ignore[reportPrivateUsage]
    _, following = device.verify([token], [], None, GREEDY, np.full(1, 0.5))
    with closing(pair.model.open(N_CTX)) as other, closing(pair.head.open_beside(other)) as late:
        other.forward([*PROMPT, LAST], 1)
        assert near(found, rows_after(late, [*PROMPT, LAST], [token, *DRAFT]))
        assert following == other.forward([token], 1)[0].argmax()


def test_the_models_cache_is_not_copied_for_it(pair: TwinPair) -> None:
    """Who holds a view of a cache makes the engine copy it for each token."""
    device, own = pair.drafts.device_sampling, pair.context.device_sampling
    assert device is not None
    assert own is not None
    text = (PROMPT * 20)[: N_CTX - 60]
    pair.context.forward(text, 1)
    sizes: list[int] = []
    for _ in range(6):
        drawn = device.draft([*text[pair.drafts.length :], LAST], GREEDY, np.full(3, 0.5), 300)
        own.verify([LAST], list(drawn.tokens), None, GREEDY, np.full(4, 0.5))
        pair.context.truncate(len(text) + 2)
        text = list(pair.context.tokens)
        pair.drafts.truncate(pair.drafts.rollback_to(len(text)))
        sizes.append(mx.get_active_memory())
    assert max(sizes) - min(sizes) < 4096


def test_what_does_not_fit_is_refused_and_nothing_is_lost(pair: TwinPair) -> None:
    pair.context.forward(PROMPT, 1)
    pair.drafts.forward([*PROMPT, LAST], 1)
    device = pair.drafts.device_sampling
    assert device is not None
    with pytest.raises(ModelError, match="do not fit"):
        device.draft([130], GREEDY, np.full(N_CTX, 0.5), 300)
    assert list(pair.drafts.tokens) == [*PROMPT, LAST]


def test_after_a_restored_state_the_next_pass_of_the_model_tells_it_all(pair: TwinPair) -> None:
    pair.context.forward(PROMPT, 1)
    expected = rows_after(pair.drafts, PROMPT, [LAST, *DRAFT])
    state = pair.context.save()
    pair.context.truncate(0)
    pair.context.forward(DRAFT, 1)
    pair.drafts.truncate(0)
    rows_after(pair.drafts, DRAFT, [LAST])
    pair.context.restore(PROMPT, state)
    pair.drafts.truncate(0)
    unknown = rows_after(pair.drafts, PROMPT, [LAST])
    assert np.isfinite(unknown).all()
    assert not near(unknown, expected[:1]), "the state before it is not in a saved cache"
    pair.context.truncate(len(PROMPT) - 1)
    pair.context.forward(PROMPT[-1:], 1)
    pair.drafts.truncate(0)
    assert near(rows_after(pair.drafts, PROMPT, [LAST, *DRAFT]), expected)


def test_a_failed_pass_leaves_it_as_it_was(pair: TwinPair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.context.forward(PROMPT, 1)
    pair.drafts.forward([*PROMPT, LAST], 1)
    expected = rows_after(pair.drafts, [], DRAFT)
    pair.drafts.truncate(len(PROMPT))
    pair.drafts.forward([LAST], 1)

    def fail(*_arguments: object) -> None:
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr("backends.mlx.heads.assistant.mx.eval", fail)
        with pytest.raises(ModelError, match="no memory left"):
            pair.drafts.forward(DRAFT, 1)
    assert list(pair.drafts.tokens) == [*PROMPT, LAST]
    assert near(rows_after(pair.drafts, [], DRAFT), expected)
