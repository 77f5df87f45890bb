"""The scenes of the pictures: what is done in the app, and when a picture is taken."""

from dataclasses import replace
from pathlib import Path

from app.tui.screens.race import RaceScreen
from scripts.pictures.stage import Stage, running

WIDE, USUAL, SMALL = (120, 36), (80, 24), (40, 20)

LETTER = """\
Dear Ms Lindqvist, thank you for your letter of the third of April. The wether here is often \
rainy, so it is wise to bring an umbrela when you come. From the station you walk along the river \
for ten minuts; our house is the one with the green door. We are at home from four on, and there \
will be tea. If the train is late, do not hurry: the kettle can wait.
"""

_EARLIER = ("Why is the sky blue?", "Name three colours of a sailing boat.")
_EDIT = "Correct the spelling of this letter and change nothing else: @letter.md"
_ENOUGH_TOKENS = 70
"""Tokens of the answer that is pictured while it is written: from 64 on its speed is compared."""


async def first_run(home: Path) -> dict[str, str]:
    """The first start, with the bundled model alone."""
    async with running(None, home, WIDE) as stage:
        await stage.until(lambda: bool(stage.front.query("Welcome #text")))
        await stage.take("first-run", WIDE, USUAL)
    return stage.pictures


async def chat(model: str, home: Path) -> dict[str, str]:
    """An answer and its figures, the lists, and an empty chat."""
    async with running(model, home, WIDE) as stage:
        for question in _EARLIER:
            await stage.send("/set max_tokens 40")
            await stage.ask(question)
            await stage.press("ctrl+n")
        await _edit(stage)
        await _lists(stage)
        await stage.press("ctrl+n")
        await stage.take("idle", WIDE, SMALL)
    return stage.pictures


async def _edit(stage: Stage) -> None:
    Path("letter.md").write_text(LETTER, encoding="utf-8")
    await stage.send("/set temperature 0")
    await stage.send(_EDIT)
    await stage.until(lambda: stage.chat.view.is_idle or _tokens(stage) >= _ENOUGH_TOKENS)
    stage.take_now("answering")
    await stage.answered()
    await stage.press("f2")
    await stage.take("details", WIDE)
    stage.chat.store.shows_details = False
    stage.chat.store.preferences = replace(stage.chat.store.preferences, panel="auto")
    await stage.take("finished", USUAL)


def _tokens(stage: Stage) -> int:
    metrics = stage.chat.store.live.metrics
    return metrics.completion_tokens if metrics else 0


async def _lists(stage: Stage) -> None:
    for key, name, sizes in (
        ("f3", "drafters", (WIDE,)),
        ("ctrl+l", "models", (WIDE, SMALL)),
        ("ctrl+o", "chats", (USUAL,)),
        ("f8", "settings", (USUAL,)),
        ("f1", "help", (USUAL,)),
    ):
        await stage.press(key)
        await stage.take(name, *sizes)
        await stage.press("escape")


async def races(model: str, home: Path, count: int) -> dict[str, str]:
    """The built-in race, count times: the picture is that of the race with the median gain."""
    seen: list[tuple[float, str]] = []
    async with running(model, home, WIDE) as stage:
        await stage.send("/race")
        race = stage.front
        assert isinstance(race, RaceScreen)
        for number in range(count):
            if number:
                await stage.press("enter")
            await stage.until(lambda: race.outcome is not None)
            await stage.rest()
            stage.take_now("race")
            rates = [
                answer.metrics.decode_tokens_per_second or 0.0 if answer.metrics else 0.0
                for answer in race.answers
            ]
            gain = rates[1] / rates[0] if rates[0] else 0.0
            print(f"race {number + 1}: {rates[0]:.2f} and {rates[1]:.2f} tok/s,", race.outcome)
            seen.append((gain, stage.pictures["race"]))
    seen.sort(key=lambda one: one[0])
    print("gains:", " ".join(f"{gain:.3f}" for gain, _ in seen))
    return {"race": seen[len(seen) // 2][1]}
