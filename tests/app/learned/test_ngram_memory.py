"""What ngram learned outlives the program, other programs at work beside it, and a full disk."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from app.learned import ngram_memory
from app.learned.ngram_memory import SAVE_SECONDS, NgramFile, NgramMemory
from decoding.drafters.ngram import Guess
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.clock import Clock

N_VOCAB = 5000
SAMPLER = Sampler(SamplingSettings())
PROCESSES, ROUNDS = 3, 8

WORKER = """
import sys
from pathlib import Path
from tests.app.learned.test_ngram_memory import PROCESSES, ROUNDS, file, said, words
from app.learned.ngram_memory import NgramMemory

number = int(sys.argv[2])
for turn in range(ROUNDS):
    memory = NgramMemory(file(Path(sys.argv[1])))
    said(memory, words(number * ROUNDS + turn))
    memory.keep()
    memory.save()
"""


def file(folder: Path) -> NgramFile:
    return NgramFile(folder / "ngrams" / "a.ngrams", "a" * 24, N_VOCAB)


def words(number: int) -> list[int]:
    """A reply of words that no other has."""
    return list(range(20 * number, 20 * number + 20))


def said(memory: NgramMemory, reply: Sequence[int]) -> None:
    memory.drafter.begin([], SAMPLER)
    memory.drafter.commit(reply)


def knows(memory: NgramMemory, reply: Sequence[int]) -> bool:
    memory.drafter.begin(reply[:10], SAMPLER)
    return memory.drafter.propose(reply[:10], 1).tokens == (reply[10],)


def kept(folder: Path, *replies: Sequence[int]) -> NgramMemory:
    """What a program leaves behind to which a model said these replies."""
    memory = NgramMemory(file(folder))
    for reply in replies:
        said(memory, reply)
        memory.keep()
    memory.save()
    return memory


def on_disk(folder: Path, *replies: Sequence[int]) -> list[bool]:
    """Whether each is known at the next start."""
    memory = NgramMemory(file(folder))
    assert memory.note == ""
    return [knows(memory, reply) for reply in replies]


def test_what_was_said_is_known_at_the_next_start(tmp_path: Path) -> None:
    kept(tmp_path, words(0), words(1))
    assert on_disk(tmp_path, words(0), words(1), words(2)) == [True, True, False]


def test_what_nobody_wanted_kept_is_not(tmp_path: Path) -> None:
    memory = NgramMemory(file(tmp_path))
    said(memory, words(0))
    memory.save()
    assert not (tmp_path / "ngrams").exists()


def test_two_that_learn_at_once_lose_nothing(tmp_path: Path) -> None:
    kept(tmp_path, words(0))
    first, second = NgramMemory(file(tmp_path)), NgramMemory(file(tmp_path))
    said(first, words(1))
    said(second, words(2))
    for memory in (first, second):
        memory.keep()
    for memory in (first, second):
        memory.save()
    assert all(on_disk(tmp_path, words(0), words(1), words(2)))


@pytest.mark.slow
def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    at_work = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(number)])
        for number in range(PROCESSES)
    ]
    assert [one.wait(120) for one in at_work] == [0] * PROCESSES
    assert all(on_disk(tmp_path, *map(words, range(PROCESSES * ROUNDS))))


def test_it_saves_at_most_every_so_often_and_at_the_end(tmp_path: Path) -> None:
    clock = Clock(0.0)
    memory = NgramMemory(file(tmp_path), clock)
    known: list[list[bool]] = []
    for number, seconds in enumerate((0.0, SAVE_SECONDS - 1.0, SAVE_SECONDS + 1.0)):
        clock.now = seconds
        said(memory, words(number))
        memory.keep()
        saving = memory._saving
        assert saving is not None
        saving.join()
        known.append(on_disk(tmp_path, *map(words, range(3))))
    said(memory, words(3))
    memory.keep()
    memory.save()
    assert known == [[True, False, False], [True, False, False], [True, True, True]]
    assert on_disk(tmp_path, words(3)) == [True]


@pytest.mark.parametrize("content", [b"", b"scngram1", b"scngram9" + bytes(9000), bytes(100)])
def test_what_cannot_be_used_is_set_aside_said_once_and_learned_anew(
    tmp_path: Path, content: bytes
) -> None:
    kept(tmp_path, words(0))
    path = file(tmp_path).path
    path.write_bytes(content)
    memory = NgramMemory(file(tmp_path))
    assert "set aside" in memory.note
    assert path.with_suffix(".unusable").read_bytes() == content
    assert NgramMemory(file(tmp_path)).note == ""
    said(memory, words(1))
    memory.keep()
    memory.save()
    assert on_disk(tmp_path, words(0), words(1)) == [False, True]


def test_what_is_damaged_while_it_runs_is_set_aside_too(tmp_path: Path) -> None:
    memory = NgramMemory(file(tmp_path))
    file(tmp_path).path.parent.mkdir()
    file(tmp_path).path.write_bytes(b"damaged")
    said(memory, words(0))
    memory.keep()
    memory.save()
    assert on_disk(tmp_path, words(0)) == [True]


def test_where_the_disk_takes_nothing_the_drafter_goes_on(tmp_path: Path) -> None:
    (tmp_path / "ngrams").write_text("a file where the folder should be")
    memory = kept(tmp_path, words(0))
    assert knows(memory, words(0))
    (tmp_path / "ngrams").unlink()
    memory.save()
    assert on_disk(tmp_path, words(0)) == [True]


def test_what_waits_for_the_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram_memory, "MOST_UNSAVED", 2)
    (tmp_path / "ngrams").write_text("")
    memory = kept(tmp_path, *map(words, range(5)))
    (tmp_path / "ngrams").unlink()
    memory.keep()
    memory.save()
    assert on_disk(tmp_path, *map(words, range(5))) == [False, False, False, True, True]


def test_what_another_one_locks_is_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram_memory, "_LOCK_SECONDS", 0.0)
    kept(tmp_path, words(0))
    with FileLock(file(tmp_path).path.with_suffix(".lock")):
        memory = kept(tmp_path, words(1))
    assert on_disk(tmp_path, words(1)) == [False]
    memory.save()
    assert on_disk(tmp_path, words(0), words(1)) == [True, True]


def test_a_guess_is_as_sure_after_a_start_as_before(tmp_path: Path) -> None:
    memory = kept(tmp_path, words(0) * 3)
    found = NgramMemory(file(tmp_path)).drafter._statistics.guess(words(0)[:5])
    assert isinstance(found, Guess)
    assert found == memory.drafter._statistics.guess(words(0)[:5])
