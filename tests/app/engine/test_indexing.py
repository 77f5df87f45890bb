"""The index follows the history: what was said is found, what is removed is gone."""

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NoReturn

import pytest

from app.engine import idle_tasks as module
from app.engine.idle_tasks import Indexing
from app.history import History
from app.history.store import remove_chat
from app.paths import Paths
from backends.chat.chat_template import ChatTemplate
from backends.chat.template_process import TemplateProcess
from decoding.drafters.retrieval import corpus as corpus_module
from decoding.drafters.retrieval.corpus import Corpus
from tests.fixtures.corpora import VOCABULARY
from tests.fixtures.tokenizers import ToyTokenizer

ANSWER = "Forty-two is the answer to everything."


@pytest.fixture
def history(paths: Paths) -> Iterator[History]:
    with closing(History.open(paths.history)) as found:
        yield found


@pytest.fixture
def tokenizer() -> ToyTokenizer:
    return ToyTokenizer([bytes([byte]) for byte in range(256)])


@pytest.fixture
def indexing(paths: Paths, tokenizer: ToyTokenizer) -> Iterator[Indexing]:
    with ExitStack() as stack:
        process = stack.enter_context(closing(TemplateProcess()))
        corpus = Corpus(paths.retrieval / "vocabulary", VOCABULARY)
        found = Indexing(corpus, ChatTemplate(tokenizer, process), paths)
        stack.callback(found.close)
        yield found


def said(history: History, question: str, answer: str = ANSWER) -> int:
    chat = history.create("model")
    history.add(chat, "user", question)
    history.add(chat, "assistant", answer, "done")
    return chat


def caught_up(indexing: Indexing) -> None:
    indexing.changed()
    indexing.run(lambda: True)
    assert not indexing.is_due


def followed(paths: Paths, text: str) -> str:
    """What the index says followed a text, "" where it knows nothing."""
    corpus = Corpus(paths.retrieval / "vocabulary", VOCABULARY)
    _, found = corpus.find(list(text.encode()), len(text[-16:]), 100)
    corpus.close()
    return bytes(found[0].tokens).decode() if found else ""


def on_disk(paths: Paths) -> bytes:
    return b"".join(path.read_bytes() for path in paths.retrieval.rglob("*.segment"))


def test_a_chat_that_the_template_refuses_is_indexed_too(
    history: History, paths: Paths, tokenizer: ToyTokenizer
) -> None:
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    said(history, "What is the answer?")
    with closing(TemplateProcess()) as process:
        corpus = Corpus(paths.retrieval / "vocabulary", VOCABULARY)
        with closing(Indexing(corpus, ChatTemplate(tokenizer, process), paths)) as indexing:
            caught_up(indexing)
            assert indexing.news() == ""
    assert ANSWER[12:] in followed(paths, ANSWER[:12])


def test_what_was_said_is_found(history: History, indexing: Indexing, paths: Paths) -> None:
    said(history, "What is the answer?")
    caught_up(indexing)
    assert followed(paths, "Forty-two is the").startswith(" answer to everything.")
    assert followed(paths, "What is the answer?").startswith("\n\nAssistant: Forty-two")


def test_nothing_is_read_twice(
    history: History, indexing: Indexing, tokenizer: ToyTokenizer
) -> None:
    said(history, "What is the answer?")
    caught_up(indexing)
    read = tokenizer.encoded
    caught_up(indexing)
    assert tokenizer.encoded == read
    said(history, "Short?", "Yes.")
    caught_up(indexing)
    assert read < tokenizer.encoded < read + 50


def test_a_chat_that_goes_on_or_changes_is_indexed_again(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    chat = said(history, "What is the answer?")
    caught_up(indexing)
    history.withdraw(chat, history.messages(chat)[-1].number)
    history.add(chat, "assistant", "Forty-two is the number of my house, I think.", "done")
    caught_up(indexing)
    assert followed(paths, "Forty-two is the").startswith(" number of my house")


def test_a_removed_chat_is_gone_at_once_and_the_others_come_back(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    secret = said(history, "My password?", "It is swordfish, of course, as always.")
    said(history, "What is the answer?")
    caught_up(indexing)
    assert followed(paths, "It is swordfish,")
    remove_chat(history, secret, paths)
    assert on_disk(paths) == b""
    caught_up(indexing)
    assert followed(paths, "It is swordfish,") == ""
    assert followed(paths, "Forty-two is the")
    history.restore(secret)
    caught_up(indexing)
    assert followed(paths, "It is swordfish,")


def test_a_chat_removed_behind_its_back_is_gone_when_it_catches_up(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    chat = said(history, "What is the answer?")
    caught_up(indexing)
    history.remove(chat)
    caught_up(indexing)
    assert on_disk(paths) == b""


def test_a_chat_removed_while_it_is_indexed_is_not_left_there(
    history: History, indexing: Indexing, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = said(history, "What is the answer?")
    said(history, "Another?", "Another answer, which is longer.")
    merge = Corpus.merge

    def removed_before(corpus: Corpus) -> Generator[None, None, None]:
        history.remove(chat)
        yield from merge(corpus)

    monkeypatch.setattr(Corpus, "merge", removed_before)
    caught_up(indexing)
    assert followed(paths, "Forty-two is the") == ""
    assert followed(paths, "Another answer,")


def test_without_a_history_the_index_is_deleted(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    said(history, "What is the answer?")
    caught_up(indexing)
    history.close()
    paths.history.unlink()
    caught_up(indexing)
    assert on_disk(paths) == b""


def test_the_oldest_chats_go_first(
    history: History, indexing: Indexing, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Text number {number} ends like {number * 7919} does." for number in range(20)]
    for text in texts[:10]:
        said(history, "Say.", text)
    caught_up(indexing)
    monkeypatch.setattr(module, "MOST_TOKENS", 500)
    for text in texts[10:]:
        said(history, "Say.", text)
    caught_up(indexing)
    known = [bool(followed(paths, text[:30])) for text in texts]
    assert known == sorted(known)
    assert known[-1]
    assert 0 < sum(known) < 10
    assert len(on_disk(paths)) < 12 * 500 + 20 * 100


def test_it_stops_for_a_question_and_goes_on_afterwards(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    for number in range(5):
        said(history, f"Question {number}?")
    steps = 0
    while indexing.is_due:
        answers = iter([True, False])
        indexing.run(lambda answers=answers: next(answers))
        steps += 1
    assert steps > 5
    assert followed(paths, "Forty-two is the")


def test_a_full_disk_ends_the_learning_and_is_told_once(
    history: History, indexing: Indexing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(corpus_module, "write_segment", full)
    said(history, "What is the answer?")
    indexing.run(lambda: True)
    assert "No space left" in indexing.news()
    assert indexing.news() == ""
    indexing.changed()
    assert not indexing.is_due


def test_a_damaged_index_is_made_anew_and_said_once(
    history: History, indexing: Indexing, paths: Paths
) -> None:
    said(history, "What is the answer?")
    caught_up(indexing)
    (path,) = paths.retrieval.rglob("*.segment")
    data = path.read_bytes()
    said(history, "And another one?")
    path.unlink()
    damaged = path.with_name(f"damaged{path.name}")
    damaged.write_bytes(data[:-100])
    caught_up(indexing)
    assert "damaged" in indexing.news()
    assert indexing.news() == ""
    assert not damaged.exists()
    assert followed(paths, "Forty-two is the")


def test_a_history_that_cannot_be_read_is_tried_again(
    indexing: Indexing, paths: Paths, history: History
) -> None:
    said(history, "What is the answer?")
    history.close()
    kept = paths.history.read_bytes()
    for path in paths.data.glob("chats.sqlite3*"):
        path.unlink()
    Path(paths.history).write_bytes(b"no database")
    caught_up(indexing)
    assert indexing.news() == ""
    paths.history.write_bytes(kept)
    caught_up(indexing)
    assert followed(paths, "Forty-two is the")
