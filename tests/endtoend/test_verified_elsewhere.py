"""A drafter here and a model behind a real server: its replies have the law of that model."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.loading.session_options import SessionOptions
from app.serve import verifying
from backends.base import Model
from backends.engines.model_loading import load, vocabulary
from backends.files.gguf_header import vocabulary_alone
from backends.remote.model import RemoteModel
from backends.remote.verifying_server import VerifyingServer
from decoding.drafters.draft_model import DraftModel
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.chance import SHORT, replies
from tests.fixtures.replied import replied, said
from tests.fixtures.rounding import is_plain, law, p_of
from tests.fixtures.served_engine import serving

pytestmark = pytest.mark.slow
PROMPT = [5, 17, 8, 17, 8, 30, 5]
SAMPLED = SamplingSettings(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0)
GREEDY = SamplingSettings(temperature=0.0)
REPLIES, RARE = 400, 1e-3


@pytest.fixture(scope="module")
def here(tiny_llama: Callable[..., Path]) -> Iterator[Model]:
    with closing(load(tiny_llama(), 1, None)) as model:
        yield model


@pytest.fixture(scope="module")
def elsewhere(here: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteModel]:
    """The same model behind a server, of which only a file without weights is here."""
    home = tmp_path_factory.mktemp("there")
    options = SessionOptions(model=str(here.info.path), draft="off", threads=1)
    with (
        serving(home, None, options) as server,
        closing(VerifyingServer(server.address)) as at,
    ):
        file = home / "vocabulary.gguf"
        file.write_bytes(at.vocabulary())
        assert file.read_bytes() == vocabulary_alone(here.info.path)
        with (
            vocabulary(file) as known,
            closing(RemoteModel(at, at.model(), known.tokenizer, file, "there")) as model,
        ):
            yield model


@pytest.fixture
def drafter(here: Model) -> Iterator[DraftModel]:
    """The model itself, whose likeliest tokens are often the ones that it draws."""
    with closing(here.open(128)) as context:
        yield DraftModel("model", context, n_vocab=here.info.n_vocab, max_draft=3, is_certain=True)


def test_the_vocabulary_is_the_models(here: Model, elsewhere: RemoteModel) -> None:
    own, known = here.tokenizer, elsewhere.tokenizer
    assert [own.entry(token) for token in range(own.n_vocab)] == [
        known.entry(token) for token in range(known.n_vocab)
    ]
    assert own.end_tokens == known.end_tokens
    assert own.chat_template == known.chat_template


def test_greedy_replies_are_those_of_the_model_here(
    here: Model, elsewhere: RemoteModel, drafter: DraftModel
) -> None:
    limits = Limits(40, frozenset())
    with closing(here.open(128)) as own, closing(elsewhere.open(128)) as far:
        plain = said(replied(own, PROMPT, GREEDY, limits, None))
        steps = replied(far, PROMPT, GREEDY, limits, drafter)
        assert is_plain(own, PROMPT, said(steps), plain)
    assert sum(step.accepted for step in steps) > 20


def likelihood(here: Model, elsewhere: RemoteModel, drafter: DraftModel) -> float:
    """How likely the model itself is to give replies as far from its law as the server's."""
    drawn, drafted = Counter[tuple[int, ...]](), 0
    with closing(elsewhere.open(128)) as far:
        for outcome, count in replies(far, PROMPT, SAMPLED, drafter, REPLIES):
            drawn[outcome] += 1
            drafted += count
    assert drafted > REPLIES
    with closing(here.open(128)) as own:
        return p_of(law(own, PROMPT, SAMPLED, SHORT), drawn)


def test_sampled_replies_have_the_law_of_the_model(
    here: Model, elsewhere: RemoteModel, drafter: DraftModel
) -> None:
    assert likelihood(here, elsewhere, drafter) > RARE


def test_a_server_that_accepts_too_much_is_caught(
    here: Model, elsewhere: RemoteModel, drafter: DraftModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = verifying._matched

    def lenient(rows: Any, drafted: Any, warping: Any, uniforms: Any) -> tuple[int, int]:
        accepted, token = drawing(rows, drafted, warping, uniforms)
        is_spared = accepted < len(drafted) and uniforms[accepted] > 0.5
        return (accepted, drafted[accepted]) if is_spared else (accepted, token)

    monkeypatch.setattr(verifying, "_matched", lenient)
    assert likelihood(here, elsewhere, drafter) < RARE
