"""What files and pasted texts offer to drafts: paragraphs as lines, in bounds, never an error."""

from collections.abc import Iterable, Iterator

import pytest

from app.drafting import reply_drafters as module
from app.drafting.reply_drafters import DocumentDrafts, flowing
from tests.fixtures.tokenizers import ToyTokenizer

LINE = "The harbour was rebuilt in the spring, after the storm had"
WRAPPED = f"{LINE}\ntaken the mole."
QUOTED = f"{LINE} taken the mole."


@pytest.fixture
def tokenizer() -> ToyTokenizer:
    """A token per byte."""
    return ToyTokenizer([bytes([byte]) for byte in range(256)])


@pytest.fixture
def drafts(tokenizer: ToyTokenizer) -> DocumentDrafts:
    return DocumentDrafts(tokenizer)


def following(drafts: DocumentDrafts, text: str) -> str:
    """What is proposed after a text."""
    _, found = drafts.find(list(text.encode()), 3, 62)
    return bytes(found[0].tokens).decode(errors="replace") if found else ""


def in_idle_time(drafts: DocumentDrafts) -> None:
    drafts.changed()
    drafts.run(lambda: True)
    assert drafts.due_in(1.0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WRAPPED, QUOTED),
        (f"{LINE} govern-\nment took it.", f"{LINE} government took it."),
        (f"{LINE}\n\nA paragraph.", f"{LINE}\n\nA paragraph."),
        (f"{LINE}\n- an item", f"{LINE}\n- an item"),
        (f"{LINE}\n    indented", f"{LINE}\n    indented"),
        ("A title\nand a line", "A title\nand a line"),
    ],
)
def test_a_paragraph_becomes_a_line_and_nothing_else_does(text: str, expected: str) -> None:
    assert flowing(text) == expected


def test_a_text_in_the_prompt_is_quoted_without_its_line_breaks(drafts: DocumentDrafts) -> None:
    assert drafts.follow(None, [f"{LINE}, once more.", WRAPPED])
    assert following(drafts, LINE) == "", "nothing is read before the answer begins"
    drafts.begin()
    assert following(drafts, "storm had") == " taken the mole."
    assert not drafts.follow(None, ["No line of it is broken.\nNot here."])
    drafts.begin()
    assert following(drafts, "storm had") == ""


def test_files_are_read_in_idle_time_and_again_only_where_they_changed(
    drafts: DocumentDrafts, tokenizer: ToyTokenizer
) -> None:
    files = {"a": WRAPPED, "b": "The bread was baked twice."}

    def texts() -> Iterable[tuple[str, str]]:
        return files.items()

    assert drafts.follow(texts, [])
    in_idle_time(drafts)
    assert following(drafts, "The bread was") == " baked twice."
    files["b"] = "The bread was burnt."
    before = tokenizer.encoded
    in_idle_time(drafts)
    assert tokenizer.encoded == before + len(files["b"])
    assert following(drafts, "The bread was") == " burnt."
    assert following(drafts, "storm had") == " taken the mole."
    assert not drafts.follow(None, [])
    assert following(drafts, "The bread was") == ""


def test_of_equal_matches_the_one_in_the_prompt_is_proposed(drafts: DocumentDrafts) -> None:
    drafts.follow(lambda: [("a", f"{LINE} sunk.")], [WRAPPED])
    drafts.begin()
    in_idle_time(drafts)
    assert following(drafts, "storm had") == " taken the mole."


def test_an_answer_before_any_idle_time_has_the_first_files(
    drafts: DocumentDrafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock) * module._AT_ONCE / 4)
    texts = [(str(n), f"{n:03}{n * 'x'}!") for n in range(1, 100)]
    drafts.follow(lambda: texts, [])
    drafts.begin()
    assert following(drafts, "001") == "x!"
    assert following(drafts, "099") == ""
    in_idle_time(drafts)
    assert following(drafts, "099") == 62 * "x"


def test_a_request_is_never_kept_waiting_for_long(drafts: DocumentDrafts) -> None:
    drafts.follow(lambda: [("a", 20_000 * "word "), ("b", WRAPPED)], [])
    drafts.changed()
    looks = 0
    while drafts.due_in(0.0) is not None:
        looks += 1
        drafts.run(iter([True, False]).__next__)
    assert looks > 100_000 / (1 << 14)
    assert following(drafts, "storm had") == " taken the mole."


def test_memory_is_bounded_whatever_the_files_hold(
    drafts: DocumentDrafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TOKENS", 1000)
    monkeypatch.setattr(module, "_SORTED", 300)
    texts = [(str(n), f"{n:03}{300 * 'x'}!") for n in range(1, 30)]
    drafts.follow(lambda: texts, [])
    in_idle_time(drafts)
    assert sum(map(len, drafts._tokens.values())) == 1000
    assert following(drafts, "003").startswith("xxx")
    assert following(drafts, "005") == ""


def test_files_that_are_gone_cost_their_drafts_and_no_answer(drafts: DocumentDrafts) -> None:
    def texts() -> Iterator[tuple[str, str]]:
        yield "a", WRAPPED
        raise OSError("gone")

    drafts.follow(texts, [])
    drafts.begin()
    assert following(drafts, "storm had") == " taken the mole."
    in_idle_time(drafts)


def test_text_that_cannot_be_encoded_is_read_as_far_as_it_can(drafts: DocumentDrafts) -> None:
    drafts.follow(lambda: [("a", f"\udcff\0 {WRAPPED} \U0001f600")], [f"\udce4{WRAPPED}"])
    drafts.begin()
    in_idle_time(drafts)
    assert following(drafts, "storm had") == " taken the mole."


def test_a_busy_processor_leaves_the_text_asked_about(
    drafts: DocumentDrafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 0.0)
    assert drafts.follow(None, [f"{LINE}, once\nmore: an earlier text.", WRAPPED])
    drafts.begin()
    assert following(drafts, "storm had") == " taken the mole."
    assert following(drafts, "an earlier") == ""
