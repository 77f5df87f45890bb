"""Answers of batches with what was computed: the same as alone, and after any kill."""

import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.training import answers
from app.training.answers import (
    OWN_SHARE,
    Asked,
    answer,
    mixed,
    open_harvest,
    taps_here,
    to_ask,
)
from app.training.prompts import made_prompts
from backends.base import Model
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from training.samples import Sample, SampleCache

TAPS, MOST = (1, 3), 12
ENDS = frozenset(range(20))


def asked(count: int) -> list[Asked]:
    """Prompts that begin alike, of other lengths."""
    numbers = np.random.default_rng(3)
    return [
        Asked(
            f"prompt {number}", "write",
            (5, 6, 7, 8, *numbers.integers(20, 300, numbers.integers(1, 80)).tolist()),
            0.8 * (number % 2), number,
        )
        for number in range(count)
    ]  # fmt: skip


class Room(NamedTuple):
    model: Model


@pytest.fixture(scope="module")
def room(llamacpp: Any, tiny_llama: Callable[..., Path]) -> Iterator[Room]:
    with closing(llamacpp.load(tiny_llama(layers=4), threads=1)) as model:
        yield Room(model)


def run(
    room: Room,
    folder: Path,
    stop: Callable[[], bool] = bool,
    *,
    count: int = 30,
    width: int = 4,
    most_bytes: int = 1 << 40,
    most_tokens: float = math.inf,
) -> SampleCache:
    """Answer as much as stop allows; the cache as it is on disk then."""
    cache = SampleCache(folder, most_bytes)
    with closing(open_harvest(room.model, 120, width, TAPS)) as harvest:
        for _ in answer(
            harvest, asked(count), cache, ENDS, stop=stop, most=MOST, most_tokens=most_tokens,
        ):  # fmt: skip
            pass
    return SampleCache(folder, most_bytes)


def states(model: Model, texts: Sequence[Sequence[int]]) -> list[np.ndarray[Any, Any]]:
    """States and logits of texts, each alone in an empty context."""
    found: list[np.ndarray[Any, Any]] = []
    with closing(open_harvest(model, 120, 1, TAPS)) as harvest:
        for tokens in texts:
            harvest.begin(())
            context = harvest.open()
            rows = [harvest.run([(context, [token])])[1] for token in tokens]
            harvest.close_sequence(context)
            found.append(np.concatenate(rows))
    return found


@pytest.fixture(scope="module")
def whole(room: Room, tmp_path_factory: pytest.TempPathFactory) -> SampleCache:
    return run(room, tmp_path_factory.mktemp("whole"))


def samples(cache: SampleCache) -> list[Sample]:
    return [cache.sample(number) for number in range(len(cache))]


def test_states_of_a_batch_are_those_of_each_sequence_alone(room: Room, whole: SampleCache) -> None:
    assert whole.done == {one.id for one in asked(30)}
    lengths = {len(sample.tokens) - sample.first for sample in samples(whole)}
    assert len(lengths) > 3  # they end at different times, and others take their places
    alone = states(room.model, [sample.tokens.tolist() for sample in samples(whole)])
    for sample, wanted in zip(samples(whole), alone, strict=True):
        size = np.abs(wanted).max()
        np.testing.assert_allclose(sample.states, wanted, atol=0.02 * size)
        shifted = np.roll(wanted, 1, axis=0)
        assert np.abs(sample.states - shifted).max() > 0.2 * size  # which is much


def test_likely_tokens_are_those_of_the_model(room: Room, whole: SampleCache) -> None:
    with closing(room.model.open(120)) as context:
        for sample in samples(whole)[:8]:
            context.truncate(0)
            context.forward(sample.tokens[: sample.first - 1].tolist(), 0)
            read = sample.tokens[sample.first - 1 :].tolist()
            rows = context.forward(read, len(read))
            logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
            said = len(rows)
            likely, known = sample.likely[-said:], sample.logs[-said:]
            given = np.take_along_axis(logs, likely.astype(np.int64), axis=1)
            np.testing.assert_allclose(known, given, atol=0.1)
            assert (np.diff(known, axis=1) <= 0).all()
            np.testing.assert_allclose(known[:, -1], np.sort(logs, axis=1)[:, -64], atol=0.1)


def test_greedy_answers_are_the_likeliest_tokens(whole: SampleCache) -> None:
    for sample in samples(whole):
        said = sample.tokens[sample.first :]
        likeliest = sample.likely[sample.first - 1 : -1, 0]
        assert (sample.temperature > 0.0) or (said == likeliest).all()
        assert len(said) == MOST or said[-1] in ENDS
        assert not ENDS.intersection(said[:-1].tolist())
    hot = [sample for sample in samples(whole) if sample.temperature > 0.0]
    assert any((one.tokens[one.first :] != one.likely[one.first - 1 : -1, 0]).any() for one in hot)


def files(folder: Path) -> list[bytes]:
    """All samples, byte by byte."""
    return [path.read_bytes() for path in sorted(folder.glob("*.npz"))]


class _KilledError(BaseException):
    pass


def test_a_run_that_is_killed_anywhere_goes_on_to_the_same_cache(
    room: Room, whole: SampleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SEGMENT", 8)
    straight = run(room, tmp_path / "straight")
    chance = random.Random(7)
    for _ in range(20):
        left = chance.randrange(1, 60)

        def stop() -> bool:
            nonlocal left
            left -= 1
            if left < 0:
                raise _KilledError
            return False

        with suppress(_KilledError):
            run(room, tmp_path / "killed", stop)
    run(room, tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "straight")
    assert straight.done == whole.done


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_cache(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from contextlib import closing; from pathlib import Path\n"
        "from app.training import answers; from backends import llamacpp\n"
        "from tests.app.training.test_answers import Room, run\n"
        "answers._SEGMENT = 8\n"
        "def stop(): print(flush=True)\n"
        "with closing(llamacpp.load(Path(sys.argv[1]), threads=1)) as model:\n"
        "    run(Room(model), Path(sys.argv[2]), stop)\n"
    )
    monkeypatch.setattr(answers, "_SEGMENT", 8)
    run(room, tmp_path / "straight")
    command = [sys.executable, "-c", code, str(room.model.info.path), str(tmp_path / "killed")]
    chance = random.Random(5)
    for _ in range(3):
        root = Path(__file__).parents[3]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(20, 90)):
                process.stdout.readline()
            process.kill()
    run(room, tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "straight")


def test_it_ends_where_the_cache_is_full_or_has_enough(room: Room, tmp_path: Path) -> None:
    full = run(room, tmp_path / "full", most_bytes=60_000)
    assert 0 < full.n_bytes <= 60_000
    assert 0 < len(full) < 30
    enough = run(room, tmp_path / "enough", most_tokens=50)
    assert 50 <= enough.tokens < 50 + MOST


def test_half_of_the_draws_are_greedy_and_each_has_its_own_seed(
    llamacpp: Any, demo_file: Path
) -> None:
    prompts = [one for one in made_prompts("train", 60) if one.kind != "dialogue"][:40]
    process = TemplateProcess()
    with closing(process), llamacpp.loading.vocabulary(demo_file) as vocabulary:
        template = ChatTemplate(vocabulary.tokenizer, process)
        made = list(to_ask(prompts, template))
        for prompt, one in zip(prompts[:2], made, strict=False):
            assert list(one.tokens) == template.prompt(prompt.messages).tokens
        assert made == list(to_ask(prompts, template))
        (told,) = to_ask(prompts[:1], template, system="Be brief.", draws=1)
        whole = [Message("system", "Be brief."), *prompts[0].messages]
        assert list(told.tokens) == template.prompt(whole).tokens
        own = replace(prompts[0], messages=tuple(whole))
        (kept,) = to_ask([own], template, system="Be long.", draws=1)
        assert kept == told
    assert len(made) == len({one.id for one in made}) == len({one.seed for one in made}) == 80
    assert sum(one.temperature == 0.0 for one in made) == 40
    assert {one.temperature for one in made} == {0.0, 0.7, 0.8, 0.9, 1.0}
    greedy = [one.id.rpartition("-")[0] for one in made if one.temperature == 0.0]
    assert len(set(greedy)) == 40


def test_chats_have_no_more_than_their_share_of_tokens() -> None:
    own = [replace(one, id=f"own {one.id}", is_private=True) for one in asked(300)]
    found = list(mixed(asked(300), own))
    tokens = [len(one.tokens) + answers.MOST for one in found]
    share = sum(t for t, one in zip(tokens, found, strict=True) if one.is_private) / sum(tokens)
    assert OWN_SHARE - 0.02 < share <= OWN_SHARE
    few = list(mixed(asked(300), own[:5]))
    assert len(few) == 305
    assert list(mixed(asked(30), ())) == asked(30)


def test_only_architectures_whose_layers_are_left_have_taps(
    llamacpp: Any, tiny_llama: Callable[..., Path]
) -> None:
    with closing(llamacpp.load(tiny_llama(layers=8), threads=1)) as model:
        assert taps_here(model) == (2, 4, 5)
    with closing(llamacpp.load(tiny_llama(layers=8, architecture="smollm3"), threads=1)) as model:
        assert taps_here(model) == ()
        with closing(open_harvest(model, 100, 2, ())) as harvest:
            harvest.begin((5, 6))
            assert harvest.run([(harvest.open(), (7, 8, 9))])[1].shape[:2] == (3, 1)


def test_mlx_leaves_the_same_kinds_of_states(
    small_mlx: Callable[..., Path], tmp_path: Path
) -> None:
    from backends import mlx

    with (
        closing(mlx.load(small_mlx("plain"))) as model,
        closing(open_harvest(model, 120, 8, (1,))) as harvest,
    ):
        assert harvest.width == 1
        cache = SampleCache(tmp_path)
        few = [replace(one, tokens=one.tokens[:6]) for one in asked(3)]
        list(answer(harvest, few, cache, ENDS, stop=bool, most=5))
        for sample in samples(cache):
            harvest.begin(())
            logits, wanted = harvest.run([(harvest.open(), sample.tokens.tolist())])
            np.testing.assert_allclose(sample.states, wanted, atol=0.02 * np.abs(wanted).max())
            assert (logits.argmax(axis=1) == sample.likely[:, 0])[sample.first - 1 :].all()
    assert len(cache) == 3


def test_more_answers_grow_at_once_than_a_chat_has_beside_it(room: Room) -> None:
    with closing(open_harvest(room.model, 120, 40, TAPS)) as harvest:
        harvest.begin((5, 6))
        opened = [harvest.open() for _ in range(harvest.width)]
        logits, found = harvest.run([(one, [7 + at]) for at, one in enumerate(opened)])
    assert len(logits) == len(found) == 40
    wanted = states(room.model, [(5, 6, 7 + at) for at in range(40)])
    for row, alone in zip(found, wanted, strict=True):
        np.testing.assert_allclose(row, alone[-1], atol=0.02 * np.abs(alone).max())


def test_a_model_with_a_running_state_answers_one_after_another(
    llamacpp: Any, tiny_mamba: Path, tmp_path: Path
) -> None:
    with closing(llamacpp.load(tiny_mamba, threads=1)) as model:
        assert taps_here(model) == ()
        with closing(open_harvest(model, 120, 8, ())) as harvest:
            assert (harvest.width, harvest.shares) == (1, False)
            cache = SampleCache(tmp_path)
            few = [replace(one, tokens=one.tokens[:6]) for one in asked(3)]
            list(answer(harvest, few, cache, ENDS, stop=bool, most=5))
            for sample in samples(cache):
                harvest.begin(())
                _, wanted = harvest.run([(harvest.open(), sample.tokens.tolist())])
                np.testing.assert_allclose(sample.states, wanted, atol=0.02 * np.abs(wanted).max())
    assert len(cache) == 3
