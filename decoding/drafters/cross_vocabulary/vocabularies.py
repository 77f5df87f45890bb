"""Two vocabularies: tokens that both have, and a text in the tokens of the other."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits, Tokenizer
from decoding.drafters.base import Reader, full
from decoding.prefill import common_prefix, prefill, reuse
from decoding.sampling.distribution import Distribution

_BYTE_ENTRY = re.compile(rb"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """What each token adds to a text, in bytes, so that vocabularies of any kind compare.

    by_token: by token id; b"" for control tokens and padding. tokens: one token for each piece; of
    several the one a tokenizer writes, which is not the spare one that stands for a lone byte.
    longest: bytes of the longest piece.
    """

    by_token: tuple[bytes, ...]
    tokens: Mapping[bytes, int]
    longest: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TokenBytes":
        """Ask a tokenizer for all its pieces: about a microsecond for each."""
        by_token = tuple(map(tokenizer.piece, range(tokenizer.n_vocab)))
        tokens: dict[bytes, int] = {}
        for token, piece in enumerate(by_token):
            known = tokens.get(piece)
            if piece and (known is None or _BYTE_ENTRY.fullmatch(tokenizer.entry(known))):
                tokens[piece] = token
        return cls(by_token, tokens, max(map(len, by_token), default=0))

    def joined(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self.by_token.__getitem__, tokens))


class Speller:
    """The tokenizer's own tokens where they give exactly the text, else the longest pieces.

    A tokenizer alone is not enough: some put a space before every text, some rewrite characters,
    and none takes a text that ends within a character.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self.pieces = pieces
        self._adds_space = pieces.joined(tokenizer.encode("a", special=False)).startswith(b" ")

    def spell(self, data: bytes) -> list[int]:
        """Tokens whose pieces join to data; a tokenizer's approximation where there are none."""
        tokens: list[int] = []
        while data:
            try:
                text, broken, data = data.decode(), b"", b""
            except UnicodeDecodeError as error:
                text = data[: error.start].decode()
                broken, data = data[error.start : error.end], data[error.end :]
            if text:
                tokens += self._of_text(text)
            tokens += self._longest(broken)
        return tokens

    def _of_text(self, text: str) -> list[int]:
        data = text.encode()
        lead = b""
        if self._adds_space and text[0] == " ":
            text = text[1:]
        elif self._adds_space:
            text, lead = f"\n{text}", b" \n"
        tokens = self._tokenizer.encode(text, special=False)
        start = self._after(tokens, len(lead))
        if start is not None and self.pieces.joined(tokens[start:]) == data:
            return tokens[start:]
        longest = self._longest(data)
        if start is None or self.pieces.joined(longest) == data:
            return longest
        return tokens[start:]

    def _after(self, tokens: list[int], size: int) -> int | None:
        """How many tokens make up the first size bytes; None where one reaches beyond."""
        count = 0
        while size > 0 and count < len(tokens):
            size -= len(self.pieces.by_token[tokens[count]])
            count += 1
        return count if size == 0 else None

    def _longest(self, data: bytes) -> list[int]:
        """The longest piece at each place; bytes that no piece begins with are left out."""
        tokens: list[int] = []
        start = 0
        while start < len(data):
            for size in range(min(self.pieces.longest, len(data) - start), 0, -1):
                token = self.pieces.tokens.get(data[start : start + size])
                if token is not None:
                    tokens.append(token)
                    break
            else:
                size = 1
            start += size
        return tokens


@dataclass(frozen=True, slots=True, eq=False)
class SharedVocabulary:
    """One-to-one between tokens of equal bytes.

    to_target: int64, shape (drafter's n_vocab,), to_drafter: shape (target's n_vocab,); -1 where
    a token is not shared. share: of the drafter's pieces, those that are shared.
    """

    to_target: NDArray[np.int64]
    to_drafter: NDArray[np.int64]
    share: float
    _in_order: NDArray[np.int64] = field(init=False)
    """The drafter's shared tokens in the order of the target's numbers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_in_order", self.to_drafter[self.to_drafter >= 0])

    @classmethod
    def of(
        cls, target: Tokenizer, ours: TokenBytes, drafter: Tokenizer, theirs: TokenBytes
    ) -> "SharedVocabulary":
        """Match the pieces of two vocabularies.

        Control tokens are never matched, as their meaning is private to a model, but for those
        that end a reply: by equal names, then the one that ends a text in either.
        """
        count = len(theirs.tokens)
        drafted = np.fromiter(theirs.tokens.values(), np.int64, count)
        found = (ours.tokens.get(piece, -1) for piece in theirs.tokens)
        to_target = np.full(drafter.n_vocab, -1, np.int64)
        to_target[drafted] = np.fromiter(found, np.int64, count)
        share = float((to_target >= 0).sum()) / max(count, 1)
        for token, same in _ends(target, drafter):
            if to_target[token] < 0 and same not in to_target:
                to_target[token] = same
        shared = np.flatnonzero(to_target >= 0)
        to_drafter = np.full(target.n_vocab, -1, np.int64)
        to_drafter[to_target[shared]] = shared
        return cls(to_target, to_drafter, share)

    def share_of(self, tokens: Iterable[int]) -> float:
        """The share of a text's tokens, those of the target, that are shared."""
        shared = self.to_drafter[np.fromiter(tokens, np.int64)] >= 0
        return float(shared.mean()) if len(shared) else 0.0

    def restricted(self, q_draft: Distribution) -> tuple[float, Distribution | None]:
        """The drafter's probability of all shared tokens, and its distribution over them alone.

        The distribution is over the target's ids; None where no shared token has any probability.
        Timor et al. 2025 (arXiv 2502.05202), token-level intersection.
        """
        if len(q_draft.ids) == len(self.to_target):
            drafted = self._in_order
            probabilities = q_draft.probabilities[drafted]
            ids = self.to_target[drafted]
        else:
            ids = self.to_target[q_draft.ids]
            order = ids.argsort()
            order = order[ids.searchsorted(0, sorter=order) :]
            ids, probabilities = ids[order], q_draft.probabilities[order]
        mass = float(probabilities.sum())
        return mass, Distribution(ids, probabilities / mass) if mass > 0.0 else None


def _ends(target: Tokenizer, drafter: Tokenizer) -> list[tuple[int, int]]:
    """Pairs (drafter's, target's) of tokens that end a reply, the surest first."""
    ours = {target.entry(token): token for token in target.end_tokens}
    named = [(token, ours.get(drafter.entry(token))) for token in sorted(drafter.end_tokens)]
    pairs = [*named, (drafter.eos, target.eos)]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def same_control(
    target: Tokenizer, ours: TokenBytes, drafter: Tokenizer, theirs: TokenBytes
) -> dict[int, list[int]]:
    named = {
        drafter.entry(token): token for token, piece in enumerate(theirs.by_token) if not piece
    }
    found = {
        token: named.get(target.entry(token)) for token, p in enumerate(ours.by_token) if not p
    }
    return {token: [same] for token, same in found.items() if same is not None}


_TAIL_BYTES = 96
"""Bytes of text after the last mark from which a new mark is sought. A guess; not measured."""

_STABLE_BYTES = 32
"""Bytes before the end whose tokens may still change as text is added. A guess; not measured."""

_TRIES = 4
"""Places that are tried for a mark. A guess; not measured."""

_LONG_TAIL = 8 * _TAIL_BYTES
"""Bytes after which a mark is set at any token of the target, if no better place is found."""

_WHITESPACE = b" \t\r\n"


class Retokenizer:
    """Follows a history of target tokens. Only the text after the last mark is tokenized anew.

    A mark is a place where both tokenizations have a boundary and the drafter's tokens before and
    after it do not depend on each other. control: what stands for a control token of the target,
    such as those of chat templates; each is a mark. opening: tokens that lead every text.
    """

    def __init__(
        self,
        pieces: TokenBytes,
        speller: Speller,
        control: Mapping[int, Sequence[int]],
        opening: Sequence[int] = (),
    ) -> None:
        self._pieces = pieces.by_token
        self._speller = speller
        self._control = control
        self.tokens: list[int] = list(opening)
        """The drafter's tokens of the history followed so far; read-only."""
        self._history: list[int] = []
        self._marks = [(0, len(self.tokens))]

    @property
    def followed(self) -> int:
        """Number of target tokens followed so far."""
        return len(self._history)

    def begin(self, history: Sequence[int]) -> int:
        common = common_prefix(self._history, history)
        if common < len(self._history):
            while self._marks[-1][0] > common:
                self._marks.pop()
            ours, theirs = self._marks[-1]
            del self._history[ours:]
            del self.tokens[theirs:]
        return len(self.tokens)

    def follow(self, history: Sequence[int]) -> int:
        """Take in what history has beyond what was followed; returns how many tokens stand."""
        position, standing = self._marks[-1]
        if len(history) == len(self._history):
            return len(self.tokens)
        self._history.extend(history[len(self._history) :])
        del self.tokens[standing:]
        run = bytearray()
        for token in self._history[position:]:
            position += 1
            piece = self._pieces[token]
            run += piece
            if not piece:
                self.tokens += self._speller.spell(bytes(run))
                self.tokens += self._control.get(token, ())
                self._marks.append((position, len(self.tokens)))
                run.clear()
        tail = self._speller.spell(bytes(run))
        if len(run) > _TAIL_BYTES:
            self._mark(bytes(run), tail)
        else:
            self.tokens += tail
        return standing

    def _mark(self, run: bytes, tail: list[int]) -> None:
        """Take in the text after the last mark, with a new mark in it if a good place is found."""
        fallback = None
        for size, position in self._places(run):
            before = self._speller.spell(run[:size])
            after = self._speller.spell(run[size:])
            if before + after == tail:
                break
            fallback = fallback or (position, before, after)
        else:
            if fallback is None or len(run) <= _LONG_TAIL:
                self.tokens += tail
                return
            position, before, after = fallback
        self.tokens += before
        self._marks.append((position, len(self.tokens)))
        self.tokens += after

    def _places(self, run: bytes) -> list[tuple[int, int]]:
        """(bytes before, target tokens before) of places for a mark, the best first.

        Tokenizers seldom join across the beginning of a word; the later, the less is left.
        """
        size, position = len(run), len(self._history)
        places: list[tuple[int, int]] = []
        words: list[tuple[int, int]] = []
        while size > 0 and len(words) < _TRIES:
            if 0 < size <= len(run) - _STABLE_BYTES:
                is_word = run[size] in _WHITESPACE and run[size - 1] not in _WHITESPACE
                (words if is_word else places).append((size, position))
            position -= 1
            size -= len(self._pieces[self._history[position]])
        return [*words, *places][:_TRIES]


class Follower(Reader):
    """Holds the target's text in the drafter's own tokens, and runs further ones after it.

    Only what changed is read again: text is tokenized from the last mark on, and the context is
    rolled back to the tokens that both have in common.
    """

    def __init__(self, context: Context, retokenizer: Retokenizer) -> None:
        super().__init__(context)
        self._retokenizer = retokenizer
        self._drafted: Sequence[int] = ()

    @property
    def tokens(self) -> Sequence[int]:
        """The text read so far, in the drafter's tokens."""
        return self._retokenizer.tokens

    def begin(self, history: Sequence[int]) -> None:
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))

    def backlog(self, history: Sequence[int]) -> int:
        new = history[self._retokenizer.followed :]
        return max(len(new) - common_prefix(self._drafted, new), 1)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        is_full = len(self._retokenizer.tokens) >= self._context.n_ctx
        return full(self._context) if is_full else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        for held, _ in self._prefill(history):
            yield held

    def row(self, history: Sequence[int]) -> Logits | None:
        """Logits after history, shape (1, drafter's n_vocab); None if it does not fit."""
        row = None
        for _, rows in self._prefill(history):
            row = rows
        return row

    def draw(self, token: int) -> Logits | None:
        """Logits after one more token of the drafter; None if the context is full."""
        if self._context.length >= self._context.n_ctx:
            return None
        return self._context.forward([token], 1)

    def drafted(self, tokens: Sequence[int]) -> None:
        """Record which drafted target tokens the context holds after the text."""
        self._drafted = tokens

    def _prefill(self, history: Sequence[int]) -> Iterator[tuple[int, Logits]]:
        self._drafted = ()
        self._agreed = min(self._agreed, self._retokenizer.begin(history))  # guesses may be gone
        self._agreed = min(self._agreed, self._retokenizer.follow(history))
        tokens = self._retokenizer.tokens
        if not 0 < len(tokens) < self._context.n_ctx:
            return
        reuse(self._context, tokens, self._agreed)
        self._agreed = self._context.length
        for held, rows in prefill(self._context, tokens):
            self._agreed = held
            self._context.checkpoint(is_brief=held == len(tokens))
            yield held, rows
