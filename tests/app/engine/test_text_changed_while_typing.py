"""Whatever is typed, changed and sent, a greedy answer is that of a prompt that is read at once.

Random actions of a user through the real engine and real backends, while it reads ahead.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from app.ahead.expected import Expected
from app.ahead.piece_reader import PieceReader
from app.chat.conversation import Conversation
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.heard import Heard, assert_plain, hear, hurry
from tests.fixtures.settled import long_ago, settle
from tests.fixtures.tiny.kinds import Pair, Tiny

GREEDY = SamplingSettings(temperature=0.0)
WORDS = ("one", "two", "the", "then", "and", "say", "on", "a\nline", "<|im_end|>", "12.5", "né")
SYSTEMS = ("", "be brief", "answer the questions of the user in a friendly way")
HEADS = {"qwen35": "mtp", "eagle3": "eagle3", "gemma4-assistant": "assistant"}
"""Their words, by kind of file."""

MOST_TOKENS = 12
_LONGEST = 250
"""Characters of a message, which are nearly as many tokens, and have to fit the context."""

_ENOUGH = 200
"""Actions among which is each kind of them."""

FEW_AND_MANY = [
    30,
    pytest.param(_ENOUGH, marks=pytest.mark.slow),
    pytest.param(400, marks=pytest.mark.nightly),
]


class Typist:
    """Types, changes and sends messages of two chats at random, while the engine reads ahead."""

    def __init__(self, model: Path, specs: Sequence[str], actions: int) -> None:
        options = SessionOptions(str(model), draft="off", threads=1, ctx=512)
        self.engine = Engine(options, Paths.of_this_user())
        self.done: Counter[str] = Counter()
        self.read_ahead = 0
        self._specs = specs
        self._actions = actions
        self._random = random.Random(actions)
        self._chats = [Conversation(), Conversation()]
        self._text = ""

    def play(self) -> None:
        usual = ((self.type, 8), (self.delete, 3), (self.paste, 2), (self.send, 4))
        rare = ((self.clear, 1), (self.change_system, 1), (self.stop, 1), (self.switch, 1))
        actions, weights = zip(*usual, *rare, (self.redraft, 1), strict=True)
        for action in self._random.choices(actions, weights, k=self._actions):
            self.done[action.__name__] += 1
            action()
            self._expect()
        self.send()
        assert self.engine.status.phase is Phase.READY
        assert self.engine.status.error is None
        assert self.read_ahead > self._actions
        if self._actions >= _ENOUGH:
            assert {action.__name__ for action in actions} == self.done.keys()

    def _expect(self) -> None:
        """Tell the engine what is known, and let it read now and then before the next action."""
        turns = [*self._chats[0].turns, *([Message("user", self._text)] if self._text else [])]
        conversation = Conversation(self._chats[0].system, turns)
        self.engine.expect(Expected(conversation, long_ago(), bool(self._text)))
        if self._random.random() < 0.7:
            settle(self.engine)

    def type(self) -> None:
        words = self._random.choices(WORDS, k=self._random.randint(1, 6))
        self._text += " ".join(words) + self._random.choice(("", " "))
        self._text = self._text[:_LONGEST]

    def delete(self) -> None:
        self._text = self._text[: -self._random.randint(1, 12)]

    def paste(self) -> None:
        place = self._random.randint(0, len(self._text))
        pasted = " ".join(self._random.choices(WORDS, k=12))
        self._text = f"{self._text[:place]}{pasted}{self._text[place:]}"[:_LONGEST]

    def clear(self) -> None:
        self._text = ""

    def change_system(self) -> None:
        self._chats[0] = replace(self._chats[0], system=self._random.choice(SYSTEMS))

    def switch(self) -> None:
        self._chats.reverse()

    def redraft(self) -> None:
        self.engine.set_draft(self._random.choice(self._specs))

    def stop(self) -> None:
        self._ask(stops=True)

    def send(self) -> None:
        self._ask(stops=False)

    def _ask(self, *, stops: bool) -> None:
        chat = self._chats[0]
        chat.add("user", self._text or "hi")
        if sum(len(turn.content) for turn in chat.turns) > 300:
            del chat.turns[:-1]
        self._text = ""
        asked = Conversation(chat.system, list(chat.turns))
        answer = self.engine.ask(Request(asked, GREEDY, MOST_TOKENS))
        if stops:
            answer.stop()
        assert answer.wait(600)
        assert answer.error is None, answer.error
        if answer.metrics is not None:
            assert answer.metrics.ahead_tokens <= answer.metrics.cached_prompt_tokens
            self.read_ahead += answer.metrics.ahead_tokens
        chat.add("assistant", answer.text)


Play = Callable[..., Sequence[Heard]]


@pytest.fixture
def short_passes(llamacpp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 48 tokens at most, so that differences that are not rounding show.

    From 64 tokens of a pass on, llama.cpp's attention takes another kernel, which moves the logits
    of a small random model by 0.07, whoever reads its prompts in such pieces. What a reply before
    left in the cache was computed in short ones, and not by reading ahead.
    """
    from backends.llamacpp.model import LlamaModel

    monkeypatch.setattr(LlamaModel, "_chunk_size", lambda _, n_ctx: min(48, n_ctx))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays so many actions on a model: play(model, specs, actions) -> what was answered."""
    hurry(monkeypatch)
    with ExitStack() as stack:

        def begin(model: Path, specs: Sequence[str], actions: int) -> Sequence[Heard]:
            typist = Typist(model, specs, actions)
            said = hear(monkeypatch)
            typist.engine.start()
            stack.callback(typist.engine.close, 60.0)
            typist.play()
            return said

        yield begin


@pytest.mark.usefixtures("short_passes")
@pytest.mark.parametrize("actions", FEW_AND_MANY)
def test_llamacpp(play: Play, tiny_llama: Callable[..., Path], actions: int) -> None:
    path = tiny_llama(seed=3)
    specs = ["off", "auto", "lookup", str(tiny_llama(seed=3, noise=0.1))]
    assert_plain(play(path, specs, actions), path)


@pytest.mark.usefixtures("short_passes")
@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        ("", 40),
        ("gemma4-assistant", 20),
        *(pytest.param(kind, _ENOUGH, marks=pytest.mark.slow) for kind in ("", "qwen35", "eagle3")),
    ],
)
def test_drafters_that_read_along(
    play: Play,
    tiny_llama: Callable[..., Path],
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    actions: int,
) -> None:
    """All that are there, as if they were expected to pay; kind: of a head."""
    read: list[int] = []
    read_ahead = ManagedDrafter.read_ahead

    def counting(managed: ManagedDrafter, history: Sequence[int], most: int) -> Iterator[int]:
        for held in read_ahead(managed, history, most):
            read.append(held)
            yield held
        assert managed.dropped == ""

    monkeypatch.setattr(ManagedDrafter, "read_ahead", counting)
    monkeypatch.setattr("decoding.planning.controller.is_promising", lambda *_: True)
    if kind:
        path, _ = pair(kind)
        specs = [HEADS[kind], f"lookup,{HEADS[kind]}"]
    else:
        path, model = tiny_llama(seed=3), str(tiny_llama(seed=3, noise=0.1))
        specs = [model, f"lookup,{model}", f"cascade(lookup,{model})", "self"]
    assert_plain(play(path, specs, actions), path, rounds=bool(kind))
    assert read or kind == "gemma4-assistant"  # which reads what its model has in the cache


@pytest.mark.slow
@pytest.mark.parametrize("actions", FEW_AND_MANY)
def test_mlx(play: Play, small_mlx: Callable[..., Path], actions: int) -> None:
    path = small_mlx("plain")
    specs = ["off", "auto", "lookup", str(small_mlx("plain", noise=0.1))]
    assert_plain(play(path, specs, actions), path, rounds=True)


@pytest.mark.usefixtures("short_passes")
@pytest.mark.parametrize(
    ("kind", "actions"), [("qwen35", 30), pytest.param("lfm2", _ENOUGH, marks=pytest.mark.slow)]
)
def test_a_running_state(play: Play, tiny: Tiny, kind: str, actions: int) -> None:
    path = tiny(kind)
    assert_plain(play(path, ["off", "auto", "lookup"], actions), path, rounds=True)


@pytest.mark.slow
@pytest.mark.usefixtures("short_passes")
def test_reading_that_does_not_take_back_what_was_changed_is_found(
    play: Play, tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def believes(
        reader: PieceReader, tokens: Sequence[int], _silence: float, _about: int | None = None
    ) -> bool:
        with reader._context.use() as context:
            more = tokens[context.length :][: context.n_chunk]
            if not more:
                return False
            context.forward(more, 0)
            reader.pieces.add(context.length - len(more), context.length, 0.0)
            held = context.tokens
            assert isinstance(held, list)
            held[:] = tokens[: len(held)]
        return True

    monkeypatch.setattr(PieceReader, "read", believes)
    path = tiny_llama(seed=3)
    said = play(path, ["off"], 60)
    with pytest.raises(AssertionError):
        assert_plain(said, path)
