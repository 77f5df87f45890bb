"""What painting a growing answer costs: by its length, by its kind, and with drafted colours.

Run on a machine with nothing else to do: python -m scripts.screen.measure_painting [TOKENS]
"""

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll

from app.engine.answer import Piece
from app.settings.start import Preferences
from app.tui.chat.answer import AnswerText
from app.tui.look import register_themes
from app.tui.store import Store

TICK_TOKENS = 83
"""Tokens of a twelfth of a second at 1,000 tok/s."""

_WORDS = ("the", "speed", "of", "a", "model", "is", "what", "**memory**", "can", "`read`", "again")


class _Screen(App[None]):
    """One answer, 120x36."""

    def __init__(self) -> None:
        super().__init__()
        register_themes(self)
        self.answer = AnswerText(Store(Preferences(Path("none"))))

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.anchor()
            yield self.answer


def _prose() -> Iterator[str]:
    words = itertools.cycle(_WORDS)
    for number in itertools.count(1):
        yield f" {next(words)}" + ("\n\n" if number % 80 == 0 else "")


def _code() -> Iterator[str]:
    yield "```python\n"
    for number in itertools.count():
        yield from (f"value_{number}", " =", " compute(", f"{number}", ",", ' "text"', ")\n")


def _list() -> Iterator[str]:
    for number in itertools.count(1):
        yield from (f"{number}.", " an", " item", " of", " a", " **long**", " list\n")


def _table() -> Iterator[str]:
    yield "| name | size | speed |\n| --- | --- | --- |\n"
    for number in itertools.count():
        yield from (f"| row {number}", " |", f" {number}", " MB", " |", " fast", " |\n")


def _mixed() -> Iterator[str]:
    yield from itertools.chain.from_iterable(
        itertools.cycle(
            [
                [*itertools.islice(_prose(), 300), "\n\n"],
                [*itertools.islice(_list(), 140), "\n"],
                [*itertools.islice(_code(), 141), "```\n\n"],
                [*itertools.islice(_table(), 71), "\n"],
            ]
        )
    )


KINDS = {"prose": _prose, "code": _code, "list": _list, "table": _table, "mixed": _mixed}


async def seconds_per_tick(tokens: Iterator[str], count: int, share: float) -> list[float]:
    """Processor seconds of each paint. share: of the tokens that were drafted."""
    chance = random.Random(0)
    app = _Screen()
    spent: list[float] = []
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        for _ in range(count // TICK_TOKENS):
            pieces = [
                Piece(text, "lookup" if chance.random() < share else "model")
                for text in itertools.islice(tokens, TICK_TOKENS)
            ]
            begun = time.process_time()
            await app.answer.grow(pieces, is_last=True)
            await pilot.pause()
            spent.append(time.process_time() - begun)
    return spent


def main() -> None:
    """Print a row for each kind of text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", nargs="?", type=int, default=20_000)
    tokens = parser.parse_args().tokens
    print("ms a paint    first tenth  last tenth  ratio  colours cost")
    for name, make in KINDS.items():
        plain = asyncio.run(seconds_per_tick(make(), tokens, 0.0))
        coloured = asyncio.run(seconds_per_tick(make(), tokens, 0.6))
        tenth = max(1, len(coloured) // 10)
        first, last = (1e3 * sum(part) / tenth for part in (coloured[:tenth], coloured[-tenth:]))
        cost = sum(coloured) / sum(plain)
        print(f"{name:12} {first:12.1f} {last:11.1f} {last / first:6.2f} {cost:12.2f}×")


if __name__ == "__main__":
    main()
