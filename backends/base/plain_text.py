"""Text that stays text: it becomes none of the tokens that structure prompts.

Engines match user-defined tokens in any text, and families use such tokens as marks of turns.
"""

import re
from collections.abc import Callable, Iterable, Iterator

Encode = Callable[[str], list[int]]

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


def adds_space(encode: Encode, piece: Callable[[int], bytes]) -> bool:
    """Whether a space is put before every text that is encoded, as SentencePiece does."""
    return any(piece(token).startswith(b" ") for token in encode("a")[:1])


def following_tokens(encode: Encode, text: str, *, has_space: bool) -> list[int]:
    """Tokens of a text that follows another. has_space: whether each has a space before it."""
    if has_space:
        before, both = encode("\n"), encode(f"\n{text}")
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)


def plain_tokens(encode: Encode, text: str, marks: Iterable[str], *, has_space: bool) -> list[int]:
    """Tokens of a text that is cut within each mark in it, so that no mark is matched."""
    first, *others = _pieces(text, marks)
    tokens = encode(first)
    for piece in others:
        tokens += following_tokens(encode, piece, has_space=has_space)
    return tokens


def _pieces(text: str, marks: Iterable[str]) -> Iterator[str]:
    """Parts of a text, of which none holds a mark: each is cut after its first character."""
    cuts = sorted({at + 1 for mark in marks for at in _places(text, mark)})
    yield from (text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _places(text: str, mark: str) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + 1)
