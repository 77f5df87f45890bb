"""Prompts to train and to test drafters with: of our own words, a file's, and the user's chats."""

import re
import string
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from app.history.records import Chat
from app.history.store import History, open_history
from app.paths import Paths
from app.training.run import Order
from backends.base import UsageError
from backends.base.safe_files import explained, read_text
from backends.chat.message import Message

_FILE = Path(__file__).with_name("prompts.toml")
_TURN = "\n-----\n"
_NUMBERS = {"n", "m"}
_VAIN = 20
"""Draws in vain of a kind, after which it has no further prompts."""


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """Messages that end with the user's. is_private: whether they are of a chat of the user's."""

    id: str
    kind: str
    messages: tuple[Message, ...]
    is_private: bool = False

    @property
    def text(self) -> str:
        return "\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a run asks. public, own: to train on, own are of the user's chats; tested: other ones.

    marks: of the chats, as History.marks gives them.
    """

    public: Sequence[TrainingPrompt]
    own: Sequence[TrainingPrompt]
    tested: Sequence[TrainingPrompt]
    marks: Sequence[str] = ()


def prompts_of(order: Order, paths: Paths, count: int, tested: int) -> Prompts:
    """Prompts of all kinds that were ordered, count of our own to train on.

    Nothing is tested that shares 13 words in a row with what is trained on.

    Raises:
        UsageError: the file of prompts cannot be read, or has none.
        HistoryError: the chats cannot be read.
    """
    of_file = prompts_of_file(Path(order.prompts)) if order.prompts else []
    public = [*of_file, *made_prompts("train", count, order.seed)]
    own, later, marks = list[TrainingPrompt](), list[TrainingPrompt](), list[str]()
    if order.chats and paths.history.exists():
        with closing(open_history(paths, repairs=False)) as history:
            own, later = prompts_of_chats(history)
            marks = history.marks()
    candidates = [*made_prompts("test", tested, order.seed), *later[:tested]]
    known = overlapping([*public, *own], candidates)
    return Prompts(public, own, [one for one in candidates if one not in known], marks)


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def made_prompts(half: Literal["train", "test"], count: int, seed: int = 0) -> list[TrainingPrompt]:
    """Up to count different prompts of our own words, kinds in turn; both halves share nothing."""
    requests = cast("dict[str, list[str]]", _file()[half]["requests"])
    slots = cast("dict[str, list[str]]", _file()[half]["slots"])
    random, made = np.random.default_rng(seed), dict[str, TrainingPrompt]()
    kinds = dict.fromkeys(requests, 0)
    for kind in cycle(requests):
        if len(made) == count or all(vain >= _VAIN for vain in kinds.values()):
            break
        if kinds[kind] >= _VAIN:
            continue
        text = _filled(str(random.choice(requests[kind])), slots, random)
        if text in made:
            kinds[kind] += 1
            continue
        kinds[kind] = 0
        made[text] = TrainingPrompt(f"{half}-{seed}-{len(made)}", kind, _messages(text))
    return list(made.values())


def _filled(request: str, slots: Mapping[str, Sequence[str]], random: np.random.Generator) -> str:
    """A request with a value for each of its slots, a different one each time a slot occurs."""
    left = dict[str, list[str]]()
    parts: list[str] = []
    for text, slot, *_ in string.Formatter().parse(request):
        parts.append(text)
        if slot in _NUMBERS:
            parts.append(str(random.integers(2, 100)))
        elif slot is not None:
            values = left.setdefault(slot, list(slots[slot]))
            parts.append(values.pop(random.integers(len(values))))
    return "".join(parts)


def _messages(text: str) -> tuple[Message, ...]:
    turns = text.split(_TURN)
    return tuple(
        Message("assistant" if number % 2 else "user", turn) for number, turn in enumerate(turns)
    )


_MOST_BYTES, _MOST_CHATS = 1 << 26, 1 << 20


def prompts_of_file(path: Path) -> list[TrainingPrompt]:
    """Prompts of a text file, a line each.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    with explained(f"cannot read prompts of {path}"):
        lines = read_text(path, _MOST_BYTES).splitlines()
    texts = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not texts:
        raise UsageError(f"there are no prompts in {path}", "it has no text, one prompt a line")
    return [
        TrainingPrompt(f"file-{number}", "file", (Message("user", text),))
        for number, text in enumerate(texts)
    ]


_TEST_SHARE = 0.1
"""Of the user's chats, the latest ones."""


def prompts_of_chats(history: History) -> tuple[list[TrainingPrompt], list[TrainingPrompt]]:
    """Questions of the user's chats, each after what was said before: to train and to test on.

    Chats with files are left out from there. A chat is of one half as a whole, and all of the
    test's began later.
    """
    chats = sorted(history.chats(limit=_MOST_CHATS), key=lambda chat: (chat.created, chat.number))
    first_tested = len(chats) - round(_TEST_SHARE * len(chats))
    halves = chats[:first_tested], chats[first_tested:]
    trained, tested = ([*chain(*(_questions(history, chat) for chat in half))] for half in halves)
    return trained, tested


def _questions(history: History, chat: Chat) -> Iterator[TrainingPrompt]:
    said = [Message("system", chat.system)] if chat.system else []
    for saved in history.path(chat.number):
        if saved.attachments or saved.role not in {"user", "assistant"}:
            return
        said.append(Message(saved.role, saved.text))
        if saved.role == "user":
            yield TrainingPrompt(f"chat-{saved.number}", "chat", tuple(said), is_private=True)


_GRAM = 13
"""Words in a row that are no coincidence (GPT-3, arXiv 2005.14165, appendix C)."""


def _grams(text: str) -> Iterator[tuple[str, ...]]:
    """Runs of 13 words; all words of a shorter text."""
    words = re.findall(r"\w+", text.lower())
    for start in range(max(len(words) - _GRAM, 0) + 1):
        yield tuple(words[start : start + _GRAM])


def overlapping(
    trained: Iterable[TrainingPrompt], tested: Iterable[TrainingPrompt]
) -> list[TrainingPrompt]:
    """Those of tested that have 13 words in a row, or all their words, in common with a trained."""
    known = {gram for prompt in trained for gram in _grams(prompt.text)}
    return [prompt for prompt in tested if not known.isdisjoint(_grams(prompt.text))]
