"""Which vocabularies a drafter may have: the target's own, give or take padding at the end."""

from dataclasses import dataclass
from typing import cast

import pytest

from backends.base import DraftUnavailableError, Tokenizer
from models.metadata.identity import require_same_vocabulary


@dataclass(frozen=True)
class Vocabulary:
    """As much of a tokenizer as is compared; None is a padding entry."""

    entries: tuple[bytes | None, ...]

    @property
    def n_vocab(self) -> int:
        return len(self.entries)

    def entry(self, token: int) -> bytes:
        entry = self.entries[token]
        return b"[PAD%d]" % token if entry is None else entry

    def is_padding(self, token: int) -> bool:
        return self.entries[token] is None


def compare(target: tuple[bytes | None, ...], drafter: tuple[bytes | None, ...]) -> None:
    model, small = (cast("Tokenizer", Vocabulary(entries)) for entries in (target, drafter))
    require_same_vocabulary(model, small, "small")


@pytest.mark.parametrize(
    ("target", "drafter"),
    [
        ((b"a", b"b"), (b"a", b"b")),
        ((b"a", b"b", None, None), (b"a", b"b")),
        ((b"a", b"b"), (b"a", b"b", None)),
        ((b"a", None, None), (b"a", None)),
    ],
)
def test_equal_up_to_padding_at_the_end(
    target: tuple[bytes | None, ...], drafter: tuple[bytes | None, ...]
) -> None:
    compare(target, drafter)


def test_padding_may_be_spelt_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vocabulary, "entry", lambda self, token: b"%d" % id(self.entries))
    compare((None, None), (None, None, None))


def test_the_first_difference_is_named() -> None:
    with pytest.raises(DraftUnavailableError, match="vocabulary mismatch") as refused:
        compare((b"a", b"b", b"c", b"d"), (b"a", b"b", b"x", b"y"))
    assert refused.value.why == "token 2 is 'c' in the model, 'x' in small"


@pytest.mark.parametrize(
    ("target", "drafter", "why"),
    [
        ((b"a", b"b"), (b"a",), "token 1, 'b', is only in the model"),
        ((b"a",), (b"a", None, b"c"), "token 2, 'c', is only in small"),
    ],
)
def test_a_real_token_past_the_end_of_the_other_is_named(
    target: tuple[bytes | None, ...], drafter: tuple[bytes | None, ...], why: str
) -> None:
    with pytest.raises(DraftUnavailableError) as refused:
        compare(target, drafter)
    assert refused.value.why == why


def test_padding_against_a_real_token_is_a_difference() -> None:
    with pytest.raises(DraftUnavailableError, match="vocabulary mismatch"):
        compare((b"a", None), (b"a", b"b"))


def test_bytes_that_are_no_text_can_be_named() -> None:
    with pytest.raises(DraftUnavailableError) as refused:
        compare((b"\xff",), (b"a",))
    assert "token 0" in refused.value.why
