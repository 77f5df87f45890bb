"""Whatever a user does while an answer is at work, a greedy answer stays the model's own.

Random actions of the app at random steps, through the real engine thread and a real backend. What
was measured before is forgotten now and then, so that a change of the drafter has to measure, and
try drafters, while an answer runs.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from app.chat.conversation import Conversation
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.events import Finish, Prefill, Step
from decoding.sampling.distribution import SamplingSettings
from tests.app.conftest import Specchat
from tests.fixtures.heard import Heard, assert_plain, hear, hurry
from tests.fixtures.tiny.kinds import Pair
from tests.fixtures.tiny.mlx_pairs import FOLDER_WORDS, FolderPair

MOST_TOKENS = 32
_ENOUGH = 250
"""Actions among which is each drafter, and each kind of action."""

SPECS = (
    "off", "auto", "lookup", "retrieval", "ngram", "lookup,ngram", "jacobi", "lookahead",
    "self", "self:skip=1", "lookup,self", "cascade(lookup,self)", "vote(lookup,self)", "tree(self)",
    "paths(self)",
)  # fmt: skip
WRONG = ("self:skip=99", "cascade(lookup,self:skip=7)", "self:experts=2", "nobody-knows-this")
HEADS = {"qwen35": "mtp", "eagle3": "eagle3", "gemma4-assistant": "assistant", "dspark": "dspark"}
"""Their words, by kind of file."""

COMMANDS = (("models", "pair"), ("models", "tune"), ("models", "info"), ("verify", "--model"))
"""Of another process of the user's, which takes the same model and files. Each gets the model."""

GREEDY = SamplingSettings(temperature=0.0)
SETTINGS = (GREEDY, replace(GREEDY, repeat_penalty=1.3), replace(GREEDY, top_k=5, seed=7))
QUESTIONS = ("hi", "the the the the", "say on and on and on", "ab" * 50)
Play = Callable[..., "Player"]


class Player:
    """Does something at random steps, on the engine's thread, and keeps what was answered."""

    def __init__(
        self,
        model: Path,
        specs: Sequence[str],
        actions: int,
        specchat: Specchat,
        commands: Sequence[tuple[str, ...]],
    ) -> None:
        options = SessionOptions(str(model), draft="lookup", threads=1)
        self.engine = Engine(options, Paths.of_this_user())
        self.done: Counter[str] = Counter()
        self.drafters: Counter[str] = Counter()
        self.said: Sequence[Heard] = ()
        self._specs = specs
        self._left = self._asked_for = actions
        self._random = random.Random(actions)
        self._specchat = specchat
        self._elsewhere: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        usual = ((self.draft, 12), (self.forget, 6), (self.draft_wrongly, 2), (self.count, 1))
        self._actions = (*usual, (self.race, 1), (self.rank, 1), (self.stop, 1))
        places = self._random.sample(range(actions), 2 * len(commands))
        self._commands = dict(zip(places, [*commands, *commands], strict=True))

    def play(self) -> None:
        """Ask, and go on with what was stopped, until enough was done."""
        partial, settings, text = "", GREEDY, QUESTIONS[0]
        while self._left > 0:
            conversation = Conversation("", [Message("user", text)])
            answer = self.engine.ask(Request(conversation, settings, MOST_TOKENS, partial))
            self._wait_for(answer)
            partial = answer.text if answer.is_stopped else ""
            if not partial:
                settings, text = self._random.choice(SETTINGS), self._random.choice(QUESTIONS)
        assert self.engine.status.phase is Phase.READY
        assert all(self.done[" ".join(words)] for words in self._commands.values())
        assert sum(len(one.tokens) for one in self.said) > self._asked_for // 2
        if self._asked_for >= _ENOUGH:
            assert set(self._specs) == self.drafters.keys()
            assert {action.__name__ for action, _ in self._actions} <= self.done.keys()

    def _wait_for(self, answer: Answer) -> None:
        """Run what is to run on another thread than the engine's until the answer is done."""
        while (work := self._elsewhere.get(timeout=600)) is not None:
            work()
        assert answer.wait(600)
        assert answer.error is None, answer.error

    def heard(self, answer: Answer) -> None:
        """A piece of an answer or of its prompt has come: do nothing, or something."""
        if self._left == 0 or self._random.random() < 0.3:
            return
        self._left -= 1
        if self._left in self._commands:
            self._command(self._commands[self._left])
            return
        actions, weights = zip(*self._actions, strict=True)
        (action,) = self._random.choices(actions, weights)
        self.done[action.__name__] += 1
        action(answer)

    def finished(self, answer: Answer) -> None:
        """An answer that was asked for by play has come to its end."""
        if answer.request.draft is None:
            self._elsewhere.put(None)

    def draft(self, answer: Answer) -> None:
        spec = self._random.choice(self._specs)
        self.drafters[spec] += 1
        self.engine.set_draft(spec)

    def forget(self, answer: Answer) -> None:
        """The next drafter has to be measured, and tried, while the answer runs."""
        for folder in (self.engine.paths.calibrations, self.engine.paths.acceptance):
            shutil.rmtree(folder, ignore_errors=True)
        self.draft(answer)

    def draft_wrongly(self, answer: Answer) -> None:
        self.engine.set_draft(self._random.choice(WRONG))

    def race(self, answer: Answer) -> None:
        for spec in ("off", self._random.choice(self._specs)):
            self.engine.ask(replace(answer.request, draft=spec))

    def rank(self, answer: Answer) -> None:
        self.engine.rank()

    def count(self, answer: Answer) -> None:
        self.engine.count("how many tokens are these?")

    def stop(self, answer: Answer) -> None:
        answer.stop()

    def _command(self, words: Sequence[str]) -> None:
        """Run a command to its end, at this very step of the answer."""
        ended = Event()
        model = str(self.engine.options.model)

        def run() -> None:
            found = self._specchat(*words, model)
            self.done[" ".join(words)] += found.returncode == 0
            ended.set()

        self._elsewhere.put(run)
        assert ended.wait(600)


@pytest.fixture
def play(specchat: Specchat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays so many actions on a model: play(model, specs, actions) -> Player, at its end.

    What is measured is measured shortly, and a change is taken up at the very next step.
    """
    hurry(monkeypatch)
    monkeypatch.setattr("app.drafting.choose.tuning._REPLY_TOKENS", 6)
    monkeypatch.setattr("app.evaluation.lossless_check.REPLIES", 20)
    with ExitStack() as stack:

        def begin(
            model: Path,
            specs: Sequence[str],
            actions: int,
            commands: Sequence[tuple[str, ...]] = COMMANDS,
        ) -> Player:
            player = Player(model, specs, actions, specchat, commands)
            player.said = hear(monkeypatch)
            _watch(player, monkeypatch)
            player.engine.start()
            stack.callback(player.engine.close, 60.0)
            player.play()
            return player

        yield begin


def _watch(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it act at every step, and know when an answer has ended."""
    on_event, finish = Answer.on_event, Answer.finish

    def acting(answer: Answer, event: Prefill | Step | Finish) -> None:
        on_event(answer, event)
        if answer.request.draft is None:
            player.heard(answer)

    def finishing(answer: Answer) -> None:
        finish(answer)
        player.finished(answer)

    monkeypatch.setattr(Answer, "on_event", acting)
    monkeypatch.setattr(Answer, "finish", finishing)


MANY = [
    pytest.param(250, marks=pytest.mark.slow),
    pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.nightly]),
]
"""Actions: among so many is each. Few show at once that something is wrong."""


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize("actions", MANY)
def test_llamacpp(play: Play, tiny_llama: Callable[..., Path], actions: int) -> None:
    path = tiny_llama(seed=3)
    others = [str(tiny_llama(seed=3, noise=0.1)), str(tiny_llama(seed=4, form="gpt2"))]
    assert_plain(play(path, [*SPECS, *others], actions).said, path)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [40, *MANY])
def test_mlx(play: Play, small_mlx: Callable[..., Path], actions: int) -> None:
    path = small_mlx("plain")
    specs = [*SPECS, str(small_mlx("plain", noise=0.1))]
    assert_plain(play(path, specs, actions).said, path)


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        ("gemma4-assistant", 20),
        *(pytest.param(kind, 60, marks=pytest.mark.slow) for kind in [*HEADS][:3]),
    ],
)
def test_heads(
    play: Play, pair: Pair, kind: str, actions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read what passes leave, so that nothing must come between these.

    Small models of random weights round by 0.002 in passes of several tokens.
    """
    monkeypatch.setattr(f"{__name__}.SETTINGS", (GREEDY,))
    path, head = pair(kind)
    specs = specs_of_head(HEADS[kind], head)
    assert_plain(play(path, specs, actions, [("models", "pair")]).said, path, rounds=True)


def specs_of_head(word: str, head: Path) -> list[str]:
    """A head alone and with others: by its word, and by its path."""
    specs = ["off", "auto", word, f"lookup,{word}", f"vote(lookup,{word})", f"{word}:{head}"]
    return [*specs, f"cascade(lookup,{word})", f"tree({word})", f"paths({word})"]


@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        ("own", 20),
        *(
            pytest.param(kind, 60, marks=pytest.mark.slow)
            for kind in ("beside", "eagle3", "dflash", "assistant")
        ),
    ],
)
def test_mlx_heads(
    play: Play, folder_pair: FolderPair, kind: str, actions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of what they draft is right, so that answers go on from what passes of theirs left."""
    monkeypatch.setattr(f"{__name__}.SETTINGS", (GREEDY,))
    path, head = folder_pair(kind)
    specs = specs_of_head(FOLDER_WORDS[kind], head)
    assert_plain(play(path, specs, actions, [("models", "pair")]).said, path, rounds=True)
