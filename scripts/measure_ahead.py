"""How soon an answer begins, and how quick keys stay, while the model reads ahead.

Run on a machine with nothing else to do:

python -m scripts.measure_ahead [--rounds N] MODEL [PART ...]

MODEL is a 1.1B body, as `scripts/models/pad_model.py --parameters 1.1B` makes it: what a prompt
costs depends on a model's size alone.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest.mock import patch

from textual import events
from textual.pilot import Pilot

from app.ahead.permission import Permission
from app.builtin_prompts import built_in_prompts
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.session import Session
from app.history.store import open_history
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.start import AppStart, Preferences
from app.tui.app import SWITCH_SECONDS, SpecchatApp
from app.tui.chat_screen import ChatScreen
from decoding.sampling.settings import SamplingSettings
from scripts.measure_app import Terminal, own_home

PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.002
_LAST_TOKENS = 40
"""Of a prompt: the last word, and what the template has behind it."""

_MOST_TOKENS = 16
"""Of an answer: only its beginning is measured."""


_WORDS = " ".join(prompt.text for prompt in built_in_prompts()).split()


@dataclass(frozen=True, slots=True)
class Begun:
    """How an answer began. seconds: from Enter to its first token; ttft: from the request."""

    seconds: float
    ttft: float
    prompt: int
    cached: int
    """Tokens of the prompt that were there before Enter."""
    ahead: int
    """Those of them that were read ahead, and not for an earlier answer."""

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s ({self.ttft:.2f} s from the request), "
            f"{self.cached:,} of {self.prompt:,} tokens there before, {self.ahead:,} read ahead"
        )


class DrivenApp:
    """The running app."""

    def __init__(self, app: SpecchatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def engine(self) -> Engine:
        """Its engine."""
        return self.app.engine

    @property
    def screen(self) -> ChatScreen:
        """Its chat."""
        return cast(ChatScreen, self.app.screen)

    def has_read(self, tokens: int) -> bool:
        """Whether a prompt of about so many tokens is read but for its last words."""
        state = self.engine.status.ahead
        if state is None or state.read < 0.9 * tokens:
            return False
        return state.total - state.read < _LAST_TOKENS

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the app go on until something holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await asyncio.sleep(_LOOK_SECONDS)

    async def ready(self) -> None:
        """Wait until the model is loaded."""
        await self.until(lambda: self.engine.status.loaded is not None)
        await self.pilot.pause()

    async def type(self, text: str, seconds: float) -> None:
        """Type a text, at an even speed, in so many seconds."""
        begun, area = time.perf_counter(), self.screen.prompt.area
        for number, character in enumerate(text):
            due = begun + seconds * number / len(text)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            area.insert(character)
        await asyncio.sleep(max(0.0, begun + seconds - time.perf_counter()))

    async def send(self) -> Begun:
        """Press Enter, and wait for the end of the answer, which is cut short."""
        view = self.screen.view
        pressed = time.perf_counter()
        self.screen.prompt.area.post_message(events.Key("enter", "\r"))
        await self.until(lambda: view.pending is not None)
        assert view.pending is not None
        answer = view.pending.answer
        await self.until(lambda: bool(answer.token_ids) or answer.is_done)
        seconds = time.perf_counter() - pressed
        await self.until(lambda: answer.is_done and view.is_idle)
        return _begun(answer, seconds)

    async def file_of(self, tokens: int, folder: Path, seed: int = 0) -> Path:
        """Write a text file of about so many tokens."""
        words = [_WORDS[(place * place + seed) % len(_WORDS)] for place in range(tokens)]
        counted = await asyncio.wrap_future(self.engine.count(" ".join(words)))
        words = words[: round(len(words) * tokens / counted)]
        path = folder / f"words{seed}.txt"
        path.write_text(" ".join(words), encoding="utf-8")
        return path


@asynccontextmanager
async def driven(
    model: Path, ahead: str, *, continues: bool = False, most_tokens: int = _MOST_TOKENS
) -> AsyncGenerator[DrivenApp]:
    """Run the app; ahead: the setting. continues: whether the last chat opens."""
    paths, permission = Paths.of_this_user(), Permission(ahead)
    options = SessionOptions(str(model))
    engine = Engine(options, paths, None, permission, permission.most_waste)
    answering = Answering(SamplingSettings(temperature=0.0), most_tokens)
    preferences = Preferences(paths.settings, animations=False, ahead=ahead)
    history = open_history(paths)
    start = AppStart(options, "", answering, preferences, continues)
    app = SpecchatApp(engine, history, start, permission=permission)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            shown = DrivenApp(app, pilot)
            await shown.ready()
            yield shown
            shown.screen.view.abandon()
            await pilot.pause()
    finally:
        engine.close(PATIENCE_SECONDS)
        history.close()


def _begun(answer: Answer, seconds: float) -> Begun:
    metrics = answer.metrics
    if answer.error is not None or metrics is None or metrics.ttft_seconds is None:
        raise RuntimeError(f"there was no answer: {answer.error}")
    counts = metrics.prompt_tokens, metrics.cached_prompt_tokens, metrics.ahead_tokens
    return Begun(seconds, metrics.ttft_seconds, *counts)


FILE_TOKENS = 2000
CHAT_TOKENS = 3000
TYPING_SECONDS = 10.0
SHORT_QUESTION = "Which of these words is named most often?"
LONG_QUESTION = (
    "I would like to plan a walk along the river for a small group of friends on a cold day in "
    "early spring and I wonder which shoes and which coats we should take with us and whether "
    "it would be better to start before lunch or after it because the light goes soon and "
    "some of us walk slowly"
)
"""Sixty words."""

ENTERS = 3
"""Of a round."""
KEYS = 40
"""Of a round."""
KEY_SECONDS = 0.17
ECHOED = "BDGJKQVWXYZ"
"""Letters that nothing else on the screen has."""


def print_begun(what: str, begun: Sequence[Begun]) -> None:
    """Print how several answers began, the middle one first."""
    middle, *others = sorted(begun, key=lambda one: abs(one.seconds - _median(begun)))
    also = f"; also {', '.join(f'{one.seconds:.2f}' for one in others)} s" if others else ""
    print(f"{what}: {middle}{also}", flush=True)


def _median(begun: Sequence[Begun]) -> float:
    return statistics.median(one.seconds for one in begun)


async def file_at_once(model: Path, folder: Path, rounds: int) -> None:
    """A file is named and the question typed right away, for ten seconds."""
    await _file(model, folder, rounds, is_read_first=False)


async def file_read(model: Path, folder: Path, rounds: int) -> None:
    """A file is named, is read, and then the question is typed for ten seconds; or nothing is."""
    await _file(model, folder, rounds, is_read_first=True)
    async with driven(model, "off") as shown:
        path = await shown.file_of(FILE_TOKENS, folder, 99)
        await shown.type(f"@{path} {SHORT_QUESTION}", 0.5)
        print_begun("the same without reading ahead", [await shown.send()])


async def _file(model: Path, folder: Path, rounds: int, *, is_read_first: bool) -> None:
    begun: list[Begun] = []
    async with driven(model, "on") as shown:
        for seed in range(rounds):
            path = await shown.file_of(FILE_TOKENS, folder, seed)
            await shown.type(f"@{path} ", 0.5)
            if is_read_first:
                await shown.until(lambda: shown.has_read(FILE_TOKENS))
            await shown.type(SHORT_QUESTION, TYPING_SECONDS)
            begun.append(await shown.send())
            await shown.screen.action_perform("new")
    order = "read, then" if is_read_first else "attached, at once"
    print_begun(f"a file of {FILE_TOKENS:,} tokens {order} {TYPING_SECONDS:.0f} s of typing", begun)


async def reopened(model: Path, folder: Path, rounds: int) -> None:
    """A chat is opened again after a restart, its state is restored, and a question is asked."""
    async with driven(model, "on") as shown:
        path = await shown.file_of(CHAT_TOKENS, folder)
        await shown.type(f"@{path} {SHORT_QUESTION}", 0.5)
        print_begun(f"the chat of {CHAT_TOKENS:,} tokens itself", [await shown.send()])
        await shown.until(lambda: any(Paths.of_this_user().saved_states.glob("*")))
        await asyncio.sleep(2.0)  # for the rest of the file
    begun: list[Begun] = []
    for _ in range(rounds):
        loading = time.perf_counter()
        async with driven(model, "on", continues=True) as shown:
            loaded = time.perf_counter()
            await shown.until(lambda shown=shown: shown.has_read(CHAT_TOKENS))
            restored = time.perf_counter()
            print(f"loaded in {loaded - loading:.1f} s, chat ready {restored - loaded:.2f} s later")
            await shown.type("And least often?", 1.6)
            begun.append(await shown.send())
    print_begun("a reopened chat", begun)


async def question(model: Path, folder: Path, rounds: int) -> None:
    """A question of sixty words at sixty words a minute, against the same one all at once."""
    del folder
    medians: list[float] = []
    for ahead, seconds in (("off", 0.5), ("on", 60.0)):
        begun: list[Begun] = []
        async with driven(model, ahead) as shown:
            for number in range(rounds):
                await shown.type(f"{number}: {LONG_QUESTION}?", seconds)
                begun.append(await shown.send())
                await shown.screen.action_perform("new")
        print_begun(f"sixty words, reading ahead {ahead}", begun)
        medians.append(_median(begun))
    print(f"with / without: {medians[1] / medians[0]:.2f}")


async def enters(model: Path, folder: Path, rounds: int) -> None:
    """From a key in the midst of reading to the moment at which the engine turns to the answer.

    After Enter a pass that reads the same prompt goes on, as it is the answer's own work. Ctrl+R
    asks for something else, for which the pass is dropped.
    """
    step = 0.0
    for ahead in ("off", "on"):
        async with driven(model, ahead) as shown:
            step = await _plain_step(shown) or step
            for key in ("ctrl+r", "enter"):
                waits = [
                    await _turn_to_answer(shown, key, folder, 10 + seed)
                    for seed in range(rounds * ENTERS)
                ]
                asked, begun = (1000 * statistics.median(part) for part in zip(*waits, strict=True))
                print(
                    f"{key}, reading ahead {ahead}: asked for after {asked:.0f} ms, the engine "
                    f"turns to it after {begun:.0f} ms; a plain step takes {1000 * step:.0f} ms",
                    flush=True,
                )


async def _turn_to_answer(
    shown: DrivenApp, key: str, folder: Path, seed: int
) -> tuple[float, float]:
    """Seconds from a key to the request, and to the engine's turn, while a file is half read."""
    turned: list[float] = []
    answer_in = Session.answer_in

    def timed(session: Session, chat: int | None) -> None:
        turned.append(time.perf_counter())
        answer_in(session, chat)

    path = await shown.file_of(FILE_TOKENS, folder, seed)
    await shown.type(f"@{path} {SHORT_QUESTION} ", 4.0)
    with patch.object(Session, "answer_in", timed):
        begun = time.perf_counter()
        await shown.pilot.press(key)
        await shown.until(lambda: bool(turned))
    answer = shown.screen.view.answer
    asked = answer.asked_at if answer is not None else turned[0]
    await shown.pilot.press("escape")
    await shown.until(lambda: shown.screen.view.is_idle)
    shown.screen.prompt.take()
    return asked - begun, turned[0] - begun


async def _plain_step(shown: DrivenApp) -> float:
    """Seconds of one token, of a short answer."""
    shown.screen.prompt.take()
    await shown.type("Count from one to nine.", 0.2)
    await shown.send()
    answer = shown.screen.view.answer
    metrics = answer.metrics if answer is not None else None
    rate = metrics.plain_tokens_per_second if metrics is not None else None
    return 1 / rate if rate else 0.0


async def echoes(model: Path, folder: Path, rounds: int) -> None:
    """From a key to its letter on the terminal, while a file is read."""
    async with driven(model, "off") as shown:
        path = await shown.file_of(2 * FILE_TOKENS, folder, 50)
    os.environ["SPECCHAT_ANIMATIONS"] = "false"  # a blinking cursor would pass for an echo
    for ahead in ("off", "on"):
        os.environ["SPECCHAT_AHEAD"] = ahead
        keys = _distinct_pairs(ECHOED)[: rounds * KEYS]
        terminal = Terminal("--model", str(model), "--draft", "off", columns=len(keys) + 120)
        terminal.until(b"CPU")
        terminal.until_quiet()
        terminal.write(f"@{path} ".encode())
        terminal.until_quiet(0.5)
        pairs = [before + key for before, key in zip(" " + keys, keys, strict=False)]
        times = [1000 * _echo(terminal, pair) for pair in pairs]
        terminal.write(b"\x03")
        terminal.leave()
        late = statistics.quantiles(times, n=20)[-1]
        print(
            f"a key's echo, reading ahead {ahead}: median {statistics.median(times):.0f} ms, "
            f"95th percentile {late:.0f} ms, at most {max(times):.0f} ms of {len(times)}",
            flush=True,
        )


def _distinct_pairs(letters: str) -> str:
    """Letters in an order in which no two neighbours occur a second time (de Bruijn)."""
    return "".join(
        first + "".join(first + second for second in letters[place + 1 :])
        for place, first in enumerate(letters)
    )


def _echo(terminal: Terminal, pair: str) -> float:
    """Seconds from a key to its letter behind the one before; keys come as at 60 words a minute.

    The line is painted as a whole, at times also between two keys.
    """
    terminal.shown = b""
    begun = time.perf_counter()
    terminal.write(pair[-1].encode())
    while pair.encode() not in terminal.shown and time.perf_counter() - begun < 5.0:
        terminal.read(0.001)
    took = time.perf_counter() - begun
    while time.perf_counter() - begun < KEY_SECONDS:
        terminal.read(0.01)
    return took


Part = Callable[[Path, Path, int], Awaitable[None]]

PARTS: dict[str, Part] = {
    "file": file_read,
    "at-once": file_at_once,
    "reopened": reopened,
    "question": question,
    "enter": enters,
    "echo": echoes,
}


def main() -> None:
    """Print the figures of each part, or of those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    asked_for = parser.parse_args()
    unknown = set(asked_for.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    sys.setswitchinterval(SWITCH_SECONDS)
    for name in asked_for.parts or PARTS:
        print(f"# {name}, load {os.getloadavg()[0]:.1f}", flush=True)
        with own_home(), tempfile.TemporaryDirectory() as folder:
            asyncio.run(
                _run(PARTS[name], asked_for.model.resolve(), Path(folder), asked_for.rounds)
            )


async def _run(part: Part, model: Path, folder: Path, rounds: int) -> None:
    await part(model, folder, rounds)


if __name__ == "__main__":
    main()
