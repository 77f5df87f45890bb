"""Answers whose model is elsewhere are the model's own, whatever is drafted: every outcome."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import count, product
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import numpy as np
import pytest

from app.serve import verifying as served
from app.serve.refusal import RefusedError
from app.serve.request_body import read_body
from app.serve.verifying import Pass, Verifying
from backends.base import PassStoppedError, Warping
from backends.base.model import stopping_passes
from backends.remote import verifying_server
from backends.remote.model import RemoteModel
from backends.remote.verifying_server import ServedModel, VerifyingServer
from decoding.draft import Draft, Drafter, KeepOn, PointMassLine, SampledLine
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling import sampler as samplers
from decoding.sampling.distribution import Distribution, SamplingSettings, truncated
from tests.decoding.conftest import FakeContext, random_table
from tests.fixtures.scripted import ScriptedModel

N_VOCAB, LENGTH = 3, 4
PROMPT = [0, 2, 1]
SETTINGS = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
TABLE = random_table(5, N_VOCAB, scale=1.0)


class Forgetful(FakeContext):
    """A server's context that keeps rejected tokens."""

    def truncate(self, length: int) -> None:
        if not length:
            super().truncate(length)


class OnDevice(FakeContext):
    """A server's context that verifies on its device."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.device_sampling = cast("Any", self)

    def verify(
        self, tokens: Any, drafted: Any, _: None, warping: Warping, uniforms: Any, __: Any
    ) -> tuple[int, int]:
        rows = self.forward([*tokens, *drafted], 1 + len(drafted))
        return served._matched(rows, drafted, served.Sampling(**asdict(warping)), uniforms)


class Guesser(Drafter):
    """Drafts so many tokens that only the text before them decides, sampled or certain."""

    name, is_free = "guesser", True

    def __init__(self, count: int, *, is_sampled: bool) -> None:
        self.count, self.is_sampled = count, is_sampled

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        random = np.random.default_rng(list(history))
        tokens = tuple(random.integers(0, N_VOCAB, min(self.count, limit)).tolist())
        even = Distribution(np.arange(N_VOCAB), np.full(N_VOCAB, 1 / N_VOCAB))
        sampled = SampledLine(tokens, (even,) * len(tokens))
        form = sampled if self.is_sampled else PointMassLine(tokens)
        return Draft(form, self.name, (0.5,) * len(tokens), (0,) * len(tokens))


class Given:
    """A generator whose numbers are given, to be looked at before they are used."""

    def __init__(self, uniforms: Sequence[float]) -> None:
        self.numbers = np.array([*uniforms, *[0.5] * 99])
        self.state = 0

    @property
    def bit_generator(self) -> "Given":
        return self

    def random(self, count: int) -> Any:
        self.state += count
        return 1.0 - self.numbers[self.state - count : self.state]


def elsewhere(
    opened: FakeContext | None = None,
    passes: Callable[[], object] = lambda: None,
    passed: Callable[[], object] = lambda: None,
) -> RemoteModel:
    """A model whose server is the real one's protocol, without a connection.

    opened: the server's context. passes, passed: called before and after each request.
    """
    opened = opened or FakeContext(TABLE)
    info = replace(ScriptedModel(["x"]).info, n_vocab=opened.table.shape[-1])
    model = SimpleNamespace(info=info, open=lambda _: opened)
    session = cast("Any", SimpleNamespace(model=model, context=SimpleNamespace(facts=opened)))
    verifying, names = Verifying(), count()

    def answer(request: httpx2.Request) -> httpx2.Response:
        passes()
        try:
            asked = read_body(Pass, request.content)
            told = verifying.run(session, asked, asked.context or f"context {next(names)}")
            passed()
        except RefusedError as error:
            return httpx2.Response(error.kind.status, json={"error": {"message": error.message}})
        return httpx2.Response(200, content=json.dumps(told).encode())

    client = httpx2.Client(transport=httpx2.MockTransport(answer), verify=False)
    server = VerifyingServer("http://elsewhere", client=client)
    named = served._identity(cast("Any", model))
    of = ServedModel(named, opened.n_ctx, "m", "a", "q", 1, 1, 1, 1, info.n_vocab, "e", "d", 1)
    return RemoteModel(server, of, cast("Any", None), info.path, "elsewhere")


def uniforms_for(reply: Sequence[int]) -> tuple[list[float], float]:
    """Numbers by which the model draws this reply, and how likely numbers are that do."""
    numbers, chance = list[float](), 1.0
    context = FakeContext(TABLE)
    for place, token in enumerate(reply):
        row = context.row([*PROMPT, *reply[:place]])
        ends = np.cumsum(truncated(row, SETTINGS).probabilities)
        begin = ends[token - 1] if token else 0.0
        numbers.append((begin + ends[token]) / 2)
        chance *= ends[token] - begin
    return numbers, chance


def replied(
    model: RemoteModel, numbers: Sequence[float], drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], int]:
    """A reply, and how many of its tokens were drafted."""
    given = Given(numbers)

    class Sampler(samplers.Sampler):
        def __init__(self, *given_to: Any) -> None:
            super().__init__(*given_to)
            self.verification = cast("Any", given)

    monkeypatch.setattr("decoding.generation.Sampler", Sampler)
    limits = Limits(LENGTH, frozenset())
    events = generate(model.open(64), PROMPT, SETTINGS, limits, drafters=always(drafter))
    steps = [event for event in events if isinstance(event, Step)]
    tokens = [token for step in steps for token in step.tokens]
    return tokens, sum(step.accepted for step in steps)


def check_all(model: Callable[[], RemoteModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reply comes of exactly those numbers by which the model alone draws it."""
    for most, is_sampled in ((1, True), (3, False)):
        total, kept = 0.0, 0
        for reply in product(range(N_VOCAB), repeat=LENGTH):
            numbers, chance = uniforms_for(reply)
            drafter = Guesser(most, is_sampled=is_sampled)
            found, accepted = replied(model(), numbers, drafter, monkeypatch)
            assert tuple(found) == reply
            total, kept = total + chance, kept + accepted
        assert total == pytest.approx(1.0)
        assert kept > N_VOCAB**LENGTH / 2, "drafts are accepted too"


def test_every_reply_has_the_chance_that_it_has_where_the_model_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_all(elsewhere, monkeypatch)


def test_so_it_has_where_the_server_verifies_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    check_all(lambda: elsewhere(OnDevice()), monkeypatch)


def test_a_server_that_keeps_rejected_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_all(lambda: elsewhere(Forgetful(TABLE)), monkeypatch)


def test_a_server_that_accepts_what_is_likeliest_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawing = served._matched

    def matched(rows: Any, drafted: Any, warping: Any, uniforms: Any) -> tuple[int, int]:
        return drawing(rows, drafted, warping.model_copy(update={"temperature": 0.0}), uniforms)

    monkeypatch.setattr(served, "_matched", matched)
    with pytest.raises(AssertionError):
        check_all(elsewhere, monkeypatch)


def test_a_server_that_uses_a_number_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = served._matched

    def matched(rows: Any, drafted: Any, warping: Any, uniforms: Any) -> tuple[int, int]:
        return drawing(rows, drafted, warping, [uniforms[0]] * len(uniforms))

    monkeypatch.setattr(served, "_matched", matched)
    with pytest.raises(AssertionError):
        check_all(elsewhere, monkeypatch)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_reply_goes_on_where_a_connection_breaks(
    is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the server did what was asked then."""
    numbers, _ = uniforms_for((1, 0, 2, 1))
    for broken in range(1, 4):
        left = [broken + 1]

        def cut(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise httpx2.ReadError("the connection was cut")

        there = FakeContext(TABLE)
        model = elsewhere(there, passed=cut) if is_done else elsewhere(there, passes=cut)
        found, _ = replied(model, numbers, Guesser(2, is_sampled=False), monkeypatch)
        assert found == [1, 0, 2, 1]
        assert left[0] < 0, "it was cut, and asked again"


def test_a_pass_that_hangs_is_left_and_what_comes_late_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifying_server, "_LONG_SECONDS", 0.001)
    goes_on, came_late = Event(), Event()
    goes_on.set()
    there = FakeContext(TABLE)
    context = elsewhere(there, lambda: goes_on.wait(60), came_late.set).open(64)
    context.forward(PROMPT, 0)
    name = context._name
    goes_on.clear()
    with stopping_passes(lambda: True), pytest.raises(PassStoppedError):
        context.forward([1], 0)
    came_late.clear()
    goes_on.set()
    assert came_late.wait(60)
    assert there.tokens == [*PROMPT, 1]
    context.forward([2], 0)
    assert context._name != name
    assert there.tokens == context.tokens == [*PROMPT, 2]


@pytest.mark.parametrize(
    "settings", [SamplingSettings(repeat_penalty=1.2), SamplingSettings(logit_bias=((1, 2.0),))]
)
def test_what_needs_logits_here_is_refused(settings: SamplingSettings) -> None:
    context = elsewhere().open(64)
    with pytest.raises(Exception, match="logits"):
        list(generate(context, PROMPT, settings, Limits(1, frozenset())))
    assert context.length == 0


def test_a_prompt_goes_in_pieces_of_which_none_is_sent_twice() -> None:
    there = FakeContext(TABLE)
    context = elsewhere(there).open(64)
    prompt = [0, 1, 2] * 12
    for _ in range(2):
        list(generate(context, prompt, SETTINGS, Limits(1, frozenset())))
    assert there.forwards == [16, 16, 3, 1, 1]
