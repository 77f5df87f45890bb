"""The list of drafters: there at once, figures as they are measured, at every width."""

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app.drafting.choose.drafter_info import DrafterInfo, Kind, Ranking
from app.engine.engine import Engine
from app.tui.screens.drafters import DraftersScreen
from backends.base import ModelError
from models.metadata.memory_bill import Fit
from tests.fixtures.small_app import Shown, compare_screen, small_app

SIZES = [(120, 36), (80, 24), (40, 20)]


def pair(
    name: str, kind: Kind, *, installed: bool = True, fits: bool | None = True, **facts: object
) -> DrafterInfo:
    size = facts.pop("size", None)
    path = Path(name) if installed else None
    known = DrafterInfo(name, kind, fits, "a reason", path, read_bytes=size)  # type: ignore[arg-type]
    return replace(known, **facts)  # type: ignore[arg-type]


INF = float("inf")
PAIRS = (
    pair("lookup", Kind.LOOKUP, acceptance=0.84, judged=400, draw_cost=0.0, break_even=0.215),
    pair("retrieval", Kind.RETRIEVAL, draw_cost=0.0, break_even=0.215),
    pair("ngram", Kind.NGRAM, acceptance=0.33, judged=99, draw_cost=0.0, break_even=0.215),
    pair("qwen3-0.6b", Kind.SAME_VOCABULARY, installed=False, size=460_600_000, draw_cost=0.2),
    pair("self", Kind.SELF),
    pair("llama3.2-1b", Kind.ACROSS_VOCABULARIES, draw_cost=0.9, break_even=INF),
    *(pair(f"mamba-{number}", Kind.SAME_VOCABULARY, fits=False) for number in range(3)),
)
LISTED = Ranking("qwen3-4b", True, 0.1, PAIRS)


class Choosing(Shown):
    def __init__(self, shown: Shown) -> None:
        super().__init__(shown.app, shown.pilot)
        self.measured: Future[Ranking] = Future()

    async def again(self, listed: Ranking | None = LISTED) -> None:
        self.measured = Future()
        engine = SimpleNamespace(drafters=lambda: listed, rank=lambda: self.measured)
        await self.open(DraftersScreen(self.app.store, cast(Engine, engine)))


@asynccontextmanager
async def chooser(
    size: tuple[int, int] = (80, 24), listed: Ranking | None = LISTED, draft: str = "auto"
) -> AsyncIterator[Choosing]:
    async with small_app(size) as shown:
        shown.app.store.draft = draft
        choosing = Choosing(shown)
        await choosing.again(listed)
        yield choosing


@pytest.fixture
async def choosing() -> AsyncIterator[Choosing]:
    async with chooser() as opened:
        yield opened


@pytest.mark.parametrize("size", SIZES)
async def test_the_list_at_every_size(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    async with chooser(size) as choosing:
        compare_screen(choosing.app, f"drafters_{size[0]}x{size[1]}", pytestconfig)


async def test_rows_stay_in_place_while_figures_fill_in(choosing: Choosing) -> None:
    await choosing.press("down", "down", "down", "down")
    assert "▸ ■ self" in choosing.text
    before = names(choosing.text)
    ranked = [replace(each, draw_cost=0.8, speedup=0.9)
              if each.name in ("self", "qwen3-0.6b") else each for each in PAIRS]  # fmt: skip
    choosing.measured.set_result(replace(LISTED, drafters=tuple(reversed(ranked))))
    for _ in range(200):
        if "measuring…" not in choosing.text:
            break
        await choosing.pilot.pause(0.02)
    assert names(choosing.text) == before
    assert "▸ ■ self" in choosing.text
    assert choosing.text.count("too slow here") == 3
    assert choosing.text.count("likely too slow here") == 1  # not downloaded, so not measured


def names(text: str) -> Sequence[str]:
    return [line.split("■")[1].split()[0] for line in text.splitlines() if "■" in line]


@pytest.mark.slow
async def test_enter_uses_f5_races_and_escape_leaves(choosing: Choosing) -> None:
    for keys in (["enter"], ["down", "f5"], ["escape"], ["up", "f5", "escape"]):
        await choosing.press(*keys)
        await choosing.again()
    assert choosing.app.returned == [("draft", "lookup"), ("race", "ngram"), None, None]


async def test_only_keys_that_do_something_are_named() -> None:
    async with chooser((80, 30)) as choosing:
        assert "Enter use · F5 race · Esc back" in choosing.text
        await choosing.press("up")
        assert "Enter use · Esc back" in choosing.text
        await choosing.press("end")
        assert "Enter shows them · Esc back" in choosing.text
        await choosing.press("enter")
        assert "─ Esc back" in choosing.text


@pytest.mark.slow
async def test_a_long_name_and_its_explanation_are_shown_in_full() -> None:
    cascade = pair("cascade(lookup,self)", Kind.COMPOSED)
    async with chooser((40, 20), replace(LISTED, drafters=(*PAIRS, cascade))) as choosing:
        await choosing.press(*["down"] * 6)
        assert "Several of these together" in choosing.text
        await choosing.press("enter")
        shown = " ".join(line.strip("│ ") for line in choosing.text.splitlines()[-6:])
        assert "cascade(lookup,self): lookup drafts for self, which drafts for the model." in shown


async def test_drafters_that_cannot_draft_are_told_with_their_reason() -> None:
    async with chooser((80, 30)) as choosing:
        await choosing.press("end", "enter")
        assert "mamba-2" in choosing.text
        await choosing.press("enter", "f5")
        assert choosing.app.returned == []
        assert "mamba-0 cannot draft: a reason" in choosing.text


async def test_without_a_model_what_every_model_has_is_there_and_a_fault_is_told() -> None:
    async with chooser(listed=None) as choosing:
        choosing.measured.set_exception(ModelError("no model is loaded"))
        await choosing.until("no model is loaded")
        assert "▸ ■ lookup" in choosing.text
        await choosing.press("home", "down", "enter")
        assert choosing.app.returned == [("draft", "off")]


async def test_what_is_in_use_is_marked_whatever_it_is() -> None:
    for draft, marked in (
        ("off", "●   off"),
        ("lookup,ngram", "● ■ ngram"),
        ("my.gguf", "●   my.gguf"),
    ):
        async with chooser(draft=draft) as choosing:
            assert marked in choosing.text


async def test_too_few_judged_tokens_are_no_figure() -> None:
    few = replace(PAIRS[0], judged=31.0)
    big = replace(PAIRS[3], fit=Fit.TOO_BIG)
    async with chooser(listed=replace(LISTED, drafters=(few, big))) as choosing:
        assert "84 %" not in choosing.text
        assert "not enough data" in choosing.text
        assert "too big beside the model" in choosing.text


@pytest.mark.parametrize("size", [(10, 3), (200, 60)])
async def test_odd_names_in_odd_terminals(size: tuple[int, int]) -> None:
    odd = replace(PAIRS[3], name="\x1b[2J[red]猫" * 9)
    async with chooser(size, replace(LISTED, drafters=(*PAIRS, odd))) as choosing:
        assert "\x1b" not in choosing.text
        await choosing.press("end", "up", "enter")
