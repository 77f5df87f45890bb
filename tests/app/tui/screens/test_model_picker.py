"""The model picker: what it lists, at every width, and what its keys do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from textual.widgets import Input

from app.loading.model_list import ListedModel, ModelList, Speed
from app.tui.screens.models import ModelsScreen
from models.catalogue import find
from models.metadata.memory_bill import Fit
from tests.fixtures.small_app import Shown, compare_screen, small_app

SIZES = [(120, 36), (80, 24), (40, 20)]


def offered(name: str, size: float, rate: float | None, fit: Fit = Fit.FITS) -> ListedModel:
    speed = None if rate is None else Speed(rate, is_measured=False)
    about, needed = "Q4_K_M, apache-2.0", round(size * 1.18)
    return ListedModel(
        name, round(size), round(size), fit, about, memory_bytes=needed, n_ctx=4096,
        licence="Apache-2.0", speed=speed,
    )  # fmt: skip


def installed(name: str, size: float, rate: float) -> ListedModel:
    model = offered(name, size, None)
    speed = Speed(rate, is_measured=True)
    return replace(model, path=Path(f"{name}.gguf"), about="hub cache", speed=speed)


BIG = tuple(offered(f"giant-{number}b", 9e10, 0.3, Fit.TOO_BIG) for number in range(14))
MODELS = ModelList(
    (
        installed("qwen3-4b", 2.5e9, 10),
        installed("demo", 98e6, 114),
        offered("qwen3-8b", 5.0e9, 5),
        offered("llama3.2-3b", 2.0e9, 12),
        offered("smollm2-1.7b", 1.1e9, 22),
        offered("qwen3-14b", 9.0e9, 3, Fit.TIGHT),
        *BIG,
    ),
    11_000_000_000,
    Path("models"),
    "qwen3-4b",
)


class Picking(Shown):
    """The picker on the screen of a small app."""

    def __init__(self, shown: Shown) -> None:
        super().__init__(shown.app, shown.pilot)
        self.stopped: list[str] = []

    def stop(self, name: str) -> bool:
        self.stopped.append(name)
        return name in self.app.store.downloads

    def star(self, stars: str) -> None:
        store = self.app.store
        store.preferences = replace(store.preferences, stars=stars)

    async def again(self, models: ModelList = MODELS) -> None:
        await self.open(ModelsScreen(self.app.store, lambda: models, self.stop, self.star))


@asynccontextmanager
async def picker(
    size: tuple[int, int] = (80, 24),
    models: ModelList = MODELS,
    downloads: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Picking]:
    async with small_app(size) as shown:
        shown.app.store.downloads = dict(downloads)
        picking = Picking(shown)
        await picking.again(models)
        yield picking


@pytest.fixture
async def picking() -> AsyncIterator[Picking]:
    async with picker() as opened:
        yield opened


@pytest.mark.parametrize("size", SIZES)
async def test_a_model_that_streams_has_a_state_and_a_speed(size: tuple[int, int]) -> None:
    speed = Speed(1.87, is_measured=False)
    big = replace(installed("llama-70b", 40e9, 1.0), fit=Fit.STREAMS, speed=speed)
    async with picker(size, replace(MODELS, models=(big, *MODELS.models))) as picking:
        line = next(line for line in picking.text.splitlines() if "llama-70b" in line)
        assert ("~1.9 tok/s" if size[0] < 60 else "about 1.9 tok/s") in line
        if size[0] >= 60:
            assert "streams" in line


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_the_picker_at_every_size(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    async with picker(size, downloads={"llama3.2-3b": "34 %, 2 min left"}) as picking:
        await picking.press("down", "down")
        compare_screen(picking.app, f"picker_{size[0]}x{size[1]}", pytestconfig)


@pytest.mark.parametrize("size", SIZES)
async def test_what_drafts_for_a_model_is_told(size: tuple[int, int]) -> None:
    """Also what others measured with a drafter that was trained for it, where there is room."""
    entry = find("gemma4-31b")
    assert entry is not None
    gemma = replace(offered("gemma4-31b", 19e9, 3), drafters=entry.drafters)
    async with picker(size, replace(MODELS, models=(gemma,), loaded="")) as picking:
        told = " ".join(line.strip("│ ") for line in picking.text.splitlines())
        is_told = "Drafts with 124m, e2b, assistant. Published for assistant" in told
        assert is_told is (size[0] > 40)
        assert ("0.8 to 1.0 on an M1 Ultra." in told) is is_told


async def test_a_drafter_for_one_model_cannot_be_used_as_one() -> None:
    head = replace(installed("eagle3-head", 1e9, 0), speed=None, fit=None, trained="EAGLE-3 head")
    async with picker(models=replace(MODELS, models=(head, *MODELS.models))) as picking:
        await picking.press("up", "enter")
        assert "eagle3-head" in picking.text
        assert "a drafter" in picking.text
        assert "eagle3-head is no model: it drafts for one (EAGLE-3 head)." in picking.text
        assert "Enter use" not in picking.text
        assert picking.app.returned == []


async def test_every_row_begins_with_a_name_in_a_small_terminal() -> None:
    async with picker((40, 20)) as picking:
        await picking.press("down", "down", "down", "down", "down", "down", "enter")
        rows = [line[2:-1].lstrip(" ●▸▲") for line in picking.text.splitlines()[3:16]]
        names = [*(model.name for model in MODELS.models), "To download"]
        assert all(not row or row.startswith(tuple(names)) for row in rows)


async def test_enter_returns_the_highlighted_model_and_escape_none(picking: Picking) -> None:
    await picking.press("down", "down", "enter")
    await picking.again()
    await picking.press("escape")
    assert picking.app.returned == ["qwen3-8b", None]


@pytest.mark.slow
async def test_typing_searches_and_an_unknown_name_is_returned_as_typed(picking: Picking) -> None:
    await picking.press(*"giant")
    assert "giant-3b" in picking.text  # too big ones, too, once they are searched for
    assert "qwen3-8b" not in picking.text
    picking.app.screen.query_one(Input).value = "org/name:Q4_0"
    await picking.press("enter")
    assert picking.app.returned == ["org/name:Q4_0"]


async def test_models_that_are_too_big_take_one_line_until_it_is_expanded() -> None:
    async with picker((80, 40)) as picking:
        assert "14 more are too big for this machine" in picking.text
        assert "giant-0b" not in picking.text
        await picking.press(*["down"] * 6, "enter")
        assert "giant-13b" in picking.text
        assert "more are too big" not in picking.text
        assert picking.app.returned == []


async def test_a_download_moves_in_its_row_and_delete_stops_it(picking: Picking) -> None:
    picking.app.store.downloads = {"qwen3-8b": "1 %, 9 min left"}
    await picking.pilot.pause()
    assert "1 %, 9 min left" in picking.text
    await picking.press("down", "down", "enter")
    assert picking.app.returned == []  # it is on its way already
    await picking.press("delete")
    assert picking.stopped == ["qwen3-8b"]
    picking.app.store.downloads = {}
    await picking.press("delete")
    assert "larger, half as fast" in picking.text


@pytest.mark.slow
async def test_only_keys_that_do_something_are_named() -> None:
    async with picker((80, 40)) as picking:
        await picking.press("home")
        for keys in ("", "Enter use · ", "Enter download · "):
            assert f"─ F2 star · F3 sort · {keys}Esc back" in picking.text
            await picking.press("down")
        await picking.press("up")
        picking.app.store.downloads = {"qwen3-8b": "1 %, 9 min left"}
        await picking.pilot.pause()
        assert "Del stop · Esc back" in picking.text
        await picking.press(*["down"] * 4)
        assert "─ F3 sort · Enter shows them · Esc back" in picking.text
        await picking.press(*"nosuch")
        assert "Enter tries it · Esc back" in picking.text


async def test_a_star_and_an_order_are_shown_and_kept(picking: Picking) -> None:
    def names() -> list[str]:
        lines = [line.strip("│ ●▸▲") for line in picking.text.splitlines()[3:-4]]
        return [line.partition("  ")[0] for line in lines if "tok/s" in line]

    assert names()[:3] == ["qwen3-4b", "demo", "qwen3-8b"]
    await picking.press("down", "down", "down", "f2")
    assert names()[2:4] == ["★ llama3.2-3b", "qwen3-8b"]
    for by, first, download in (
        ("by name", "demo", "qwen3-14b"), ("by size", "demo", "smollm2-1.7b"),
        ("by speed", "demo", "smollm2-1.7b"), ("by last use", "qwen3-4b", "qwen3-8b"),
    ):  # fmt: skip
        await picking.press("f3")
        assert f"{by} · 11 GB" in picking.text
        assert (names()[0], names()[2:4]) == (first, ["★ llama3.2-3b", download])
    await picking.press("escape")
    await picking.again()
    assert "by last use" in picking.text
    await picking.press("f3")
    assert " by " not in picking.text
    await picking.press("down", "down", "f2")
    assert "★" not in picking.text


async def test_what_a_model_is_good_at_is_told() -> None:
    model = replace(MODELS.models[0], good_at=("chat", "images"))
    async with picker(models=replace(MODELS, models=(model,))) as picking:
        told = " ".join(line.strip("│ ") for line in picking.text.splitlines())
        assert "Good at chat, images." in told


async def test_enter_on_the_model_in_use_keeps_it_as_it_is(picking: Picking) -> None:
    await picking.press("enter")
    assert picking.app.returned == [None]


async def test_delete_edits_the_search_where_nothing_downloads(picking: Picking) -> None:
    await picking.press(*"qwen", "home", "delete")
    assert picking.app.screen.query_one(Input).value == "wen"


async def test_an_incomplete_model_is_marked_and_cannot_be_chosen() -> None:
    cut = replace(installed("mine", 1.1e9, 5), fault="incomplete: 1.1 of 2.5 GB", fit=None)
    async with picker(models=replace(MODELS, models=(*MODELS.models, cut))) as picking:
        await picking.press("down", "down", "enter")
        assert "✕ mine" in picking.text
        assert picking.text.count("incomplete: 1.1 of 2.5 GB") == 2  # row and details
        assert picking.app.returned == []


@pytest.mark.parametrize("size", [(10, 3), (20, 6), (300, 80)])
async def test_odd_names_in_odd_terminals(size: tuple[int, int]) -> None:
    odd = "\x1b[31m\u202e猫[/]" + "x" * 300
    models = replace(MODELS, models=(installed(odd, 1e9, 3), *MODELS.models), loaded="")
    async with picker(size, models) as picking:
        assert "\x1b" not in picking.text
        await picking.press("down", "up", "enter")
        assert picking.app.returned == [odd]
