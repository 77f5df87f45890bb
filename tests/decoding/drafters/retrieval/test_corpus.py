"""What a corpus finds, compared with looking at every place; what it drops, merges and forgets."""

import builtins
import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoding.drafters.retrieval import corpus as merging
from decoding.drafters.retrieval import segment_file as module
from decoding.drafters.retrieval.corpus import Corpus, forget
from decoding.drafters.retrieval.segment_file import DEPTH, suffix_order
from tests.fixtures.corpora import VOCABULARY, corpus_of, document, finished

common = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.lists(st.integers(0, 3), min_size=1, max_size=30)
Found = tuple[int, Counter[tuple[int, ...]]]


def found(corpus: Corpus, history: Sequence[int], least: int = 1, count: int = 4) -> Found:
    length, occurrences = corpus.find(history, least, count)
    return length, Counter(one.tokens for one in occurrences)


def expected(documents: Sequence[Sequence[int]], history: Sequence[int], count: int = 4) -> Found:
    """The longest match with anything behind it, and what followed each time."""
    for length in range(min(DEPTH, len(history)), 0, -1):
        tail = list(history[-length:])
        followed = [
            tuple(tokens[end : end + count])
            for tokens in documents
            for end in range(length, len(tokens))
            if list(tokens[end - length : end]) == tail
        ]
        if followed:
            return length, Counter(followed)
    return 0, Counter()


@pytest.mark.slow
@common
@given(st.lists(st.lists(texts, min_size=1, max_size=3), max_size=3), texts)
def test_it_finds_what_looking_everywhere_finds(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[list[int]]], history: list[int]
) -> None:
    documents = [tokens for segment in segments for tokens in segment]
    numbers = iter(range(100))
    corpus = corpus_of(
        tmp_path_factory.mktemp("corpus"),
        *([document(next(numbers), tokens) for tokens in segment] for segment in segments),
    )
    length, followed = found(corpus, history)
    wanted_length, wanted = expected(documents, history)
    assert length == wanted_length
    assert set(followed) <= set(wanted)
    if sum(wanted.values()) <= 3:  # of more places some are read
        assert followed == wanted
    finished(corpus.merge())
    assert found(corpus, history)[0] == wanted_length


def test_many_places_are_stood_for_by_some(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, [1, 2, 3, 9] * 100 + [1, 2, 3, 8])])
    length, occurrences = corpus.find([7, 7, 1, 2, 3], 3, 1)
    assert length == 3
    assert len(occurrences) <= 16
    assert sum(one.count for one in occurrences) == pytest.approx(101)


def test_a_match_does_not_cross_from_one_document_into_another(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, [1, 2, 3]), document(2, [4, 5, 6])])
    assert corpus.find([1, 2, 3], 1, 5) == (0, [])
    assert corpus.find([3, 4], 2, 5) == (0, [])
    assert found(corpus, [9, 2])[1] == {(3,): 1}


def test_the_document_at_work_gives_way_to_a_shorter_match(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path, [document(1, [1, 2, 3, 4, 5])], [document(2, [9, 3, 4, 6]), document(3, [4, 7])]
    )
    assert found(corpus, [1, 2, 3, 4]) == (4, {(5,): 1})
    corpus.without = 1
    assert found(corpus, [1, 2, 3, 4]) == (2, {(6,): 1})


def test_of_two_versions_the_later_one_counts_wherever_it_stands(tmp_path: Path) -> None:
    new, old = document(1, [1, 2, 3, 8], version=2), document(1, [1, 2, 3, 9], version=1)
    corpus = corpus_of(tmp_path, [new], [old, document(2, [5, 5, 5, 5])])
    assert found(corpus, [1, 2, 3]) == (3, {(8,): 1})
    assert corpus.notes()[1][0].stamp == new.note.stamp
    finished(corpus.merge())
    assert found(corpus, [1, 2, 3]) == (3, {(8,): 1})
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert np.array([9, 3, 2, 1], ">u4").tobytes() not in held


def test_what_is_not_kept_is_left_out_and_dropped_by_merging(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, [1, 2, 3, 4]), document(2, [5, 6, 7, 8])])
    corpus.keep({2})
    assert found(corpus, [1, 2, 3]) == (0, {})
    finished(corpus.merge())
    assert found(Corpus(tmp_path, VOCABULARY), [1, 2, 3]) == (0, {})
    assert found(corpus, [5, 6, 7]) == (3, {(8,): 1})


def test_merging_leaves_few_segments_and_every_document(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    said = [generator.integers(0, 1000, int(generator.integers(5, 200))) for _ in range(60)]
    corpus = Corpus(tmp_path, VOCABULARY)
    for number, tokens in enumerate(said):
        finished(corpus.add([document(number, tokens.tolist())]))
        finished(corpus.merge())
    assert len(list(tmp_path.iterdir())) <= 7
    assert {number: length for number, (_, length) in corpus.notes().items()} == {
        number: len(tokens) for number, tokens in enumerate(said)
    }
    for tokens in said:
        assert (
            found(corpus, tokens[:5].tolist() if len(tokens) > 5 else tokens[:4].tolist())[0] >= 4
        )


def test_segments_of_some_size_are_merged_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MOST_TOKENS", 100)
    monkeypatch.setattr(merging, "_LARGE", 50)
    corpus = corpus_of(tmp_path, *([document(n, range(60))] for n in range(4)))
    finished(corpus.merge())
    assert len(list(tmp_path.iterdir())) == 4


def test_two_programs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    ours, theirs = Corpus(tmp_path, VOCABULARY), Corpus(tmp_path, VOCABULARY)
    writing = [ours.add([document(1, [1, 2, 3, 4])]), theirs.add([document(2, [5, 6, 7, 8])])]
    while writing:
        writing = [one for one in writing if next(one, "done") is None]
    merging_at_once = [ours.merge(), theirs.merge()]
    while merging_at_once:
        merging_at_once = [one for one in merging_at_once if next(one, "done") is None]
    for corpus in (ours, theirs):
        corpus.refresh()
        finished(corpus.merge())
    for corpus in (ours, theirs, Corpus(tmp_path, VOCABULARY)):
        corpus.refresh()
        assert found(corpus, [1, 2, 3]) == (3, {(4,): 1})
        assert found(corpus, [5, 6, 7]) == (3, {(8,): 1})


def test_a_document_that_is_forgotten_is_on_the_disk_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "vocabulary"
    corpus = corpus_of(folder, [document(1, [1, 2, 3, 4])], [document(2, [5, 6, 7, 8])])
    forget(tmp_path, 1)
    assert len(list(folder.iterdir())) == 1
    corpus.refresh()
    assert found(corpus, [1, 2, 3]) == (0, {})
    assert found(corpus, [5, 6, 7]) == (3, {(8,): 1})
    corpus.forget_all_but([])
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("history", [[], [5], [1, 2]])
def test_a_short_text_or_an_empty_corpus_finds_nothing(tmp_path: Path, history: list[int]) -> None:
    assert Corpus(tmp_path / "none", VOCABULARY).find(history, 1, 5) == (0, [])
    assert corpus_of(tmp_path, [document(1, [1, 2, 3])]).find(history[:0], 1, 5) == (0, [])
    assert corpus_of(tmp_path / "empty", [document(1, [])]).find(history, 1, 5) == (0, [])


TEXT = [1, 2, 3, 4, 5, 6]
Damage = Callable[[bytes], bytes]


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def flipped(place: int) -> Damage:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


HEAD_DAMAGE: dict[str, Damage] = {
    "empty": lambda data: b"",
    "half a head": lambda data: data[:20],
    "half written": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0\0\0\0",
    "other bytes": lambda data: bytes(len(data)),
    "a bit in the counts": flipped(50),
    "a bit in the table": flipped(80),
}


@pytest.mark.parametrize("name", HEAD_DAMAGE)
def test_a_damaged_file_is_set_aside_and_said_once(tmp_path: Path, name: str) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    path.write_bytes(HEAD_DAMAGE[name](path.read_bytes()))
    corpus_of(tmp_path, [document(2, TEXT)]).close()
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2)[0] == 3
    assert not path.exists()
    assert set(corpus.notes()) == {2}
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.faults == []


def test_damaged_text_is_found_by_the_check(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    path.write_bytes(flipped(-20)(path.read_bytes()))
    corpus = Corpus(tmp_path, VOCABULARY)
    finished(corpus.check())
    assert len(corpus.faults) == 1
    assert corpus.faults[0].endswith("is damaged: it is left out until the app makes it anew")
    assert not path.exists()
    assert corpus.notes() == {}


def test_places_outside_the_text_drop_the_file_and_no_more(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    path = only_file(tmp_path)
    data = path.read_bytes()
    samples = 64  # of these few places there is one
    path.write_bytes(data[: -samples - 4 * len(TEXT)] + b"\xf0" * 4 * len(TEXT) + data[-samples:])
    corpus = Corpus(tmp_path, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])


def test_another_vocabulary_is_set_aside(tmp_path: Path) -> None:
    corpus_of(tmp_path, [document(1, TEXT)]).close()
    corpus = Corpus(tmp_path, bytes(32))
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])
    assert "another vocabulary" in "".join(corpus.faults)


def test_what_a_newer_version_wrote_is_left_to_it_but_for_forgetting(tmp_path: Path) -> None:
    folder = tmp_path / "vocabulary"
    corpus_of(folder, [document(1, TEXT)]).close()
    path = only_file(folder)
    newer = path.read_bytes().replace(b"scretri1", b"scretri2", 1)
    path.write_bytes(newer)
    corpus = Corpus(folder, VOCABULARY)
    assert corpus.find([1, 2, 3], 3, 2) == (0, [])
    assert len(corpus.faults) == 1
    corpus.refresh()
    assert len(corpus.faults) == 1
    assert path.read_bytes() == newer
    forget(tmp_path, 7)
    assert not path.exists()


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(tmp_path, [document(1, TEXT)])
    opened = builtins.open

    def full(path: Any, mode: str = "r", **options: Any) -> Any:
        file = opened(path, mode, **options)
        if "x" not in mode:
            return file
        file.write(b"some")
        file.close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", full)
        with pytest.raises(OSError, match="No space"):
            finished(corpus.add([document(2, TEXT[::-1])]))
    assert len(list(tmp_path.iterdir())) == 1
    assert set(corpus.notes()) == {1}


def test_a_segment_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    corpus_of(tmp_path / "folder", [document(1, TEXT)])
    assert only_file(tmp_path / "folder").stat().st_mode & 0o077 == 0
    assert (tmp_path / "folder").stat().st_mode & 0o077 == 0


def test_what_a_killed_program_left_half_written_is_removed(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [document(1, TEXT)])
    old, fresh = tmp_path / ".old.segment.123", tmp_path / ".fresh.segment.124"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    corpus.tidy()
    assert (old.exists(), fresh.exists()) == (False, True)
    assert set(corpus.notes()) == {1}


LARGE = 0xFFFF_FFFF


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([0, 1, 2, 70_000, LARGE]), max_size=80),
    st.sampled_from([1, 2, 4, 16]),
    st.sampled_from([1, 7, 1 << 16]),
)
def test_places_are_sorted_by_as_many_tokens_as_asked(
    text: list[int], depth: int, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        order = finished(suffix_order(np.array(text, np.uint32), depth)).tolist()
    assert sorted(order) == list(range(len(text)))
    suffixes = [text[place : place + depth] for place in order]
    assert suffixes == sorted(suffixes)


def test_it_lets_go_of_the_processor_on_the_way() -> None:
    text = np.random.default_rng(0).integers(0, 50, 300_000).astype(np.uint32)
    assert sum(1 for _ in suffix_order(text, 16)) > 10
