"""Text that stays text: it becomes none of the tokens that structure prompts.

Engines match user-defined tokens in any text, and families use such tokens as marks of turns.
"""

import re
from collections.abc import Callable, Iterable, Iterator

_TAG = re.compile(r"</?[a-z]+[0-9]?>")
"""As of HTML, which some vocabularies have tokens for."""


def marks_of(texts: Iterable[str], template: str | None) -> tuple[str, ...]:
    """Of the texts of user-defined tokens those that may be marks.

    The others stand for white space, or are tags that the chat template does not use.
    """
    return tuple(
        text
        for text in texts
        if len(text.strip()) > 1 and not (_TAG.fullmatch(text) and text not in (template or ""))
    )


def plain_tokens(
    encode: Callable[[str], list[int]], text: str, marks: Iterable[str], *, adds_space: bool
) -> list[int]:
    """Tokens of a text that is cut within each mark in it, so that no mark is matched.

    adds_space: whether a space is put before every text that is encoded.
    """
    first, *others = _pieces(text, marks)
    tokens = encode(first)
    before = encode("\n") if adds_space and others else []
    for piece in others:
        following = encode(f"\n{piece}") if adds_space else encode(piece)
        is_clean = following[: len(before)] == before
        tokens += following[len(before) :] if is_clean else encode(piece)
    return tokens


def _pieces(text: str, marks: Iterable[str]) -> Iterator[str]:
    """Parts of a text, of which none holds a mark: each is cut after its first character."""
    cuts = sorted({at + 1 for mark in marks for at in _places(text, mark)})
    yield from (text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _places(text: str, mark: str) -> Iterator[int]:
    """Where a mark stands in a text; its places may overlap."""
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + 1)
