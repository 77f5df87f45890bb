"""What files and pasted texts say, as one draws on them: each paragraph on one line."""

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from backends.base.model import Tokenizer
from backends.chat.message import whole_characters
from decoding.drafters.retrieval.segment import Occurrence, TextIndex

Texts = Callable[[], Iterable[tuple[str, str]]]
"""Reads the files of a chat: name and text of each."""

MOST_TOKENS = 1 << 21
"""Most tokens of all files, about 8 MB of text: the first ones."""

_SLICE = 1 << 14
"""Characters that become tokens between two looks at whether a request waits: 6 to 15 ms."""

_SORTED = 1 << 18
"""Tokens that are sorted at once: 30 ms."""

_NO_TOKENS = np.array([], np.uint32)

_AT_ONCE = 0.05
"""Seconds for files in an answer that comes before any idle time, after its first token: enough
for 100,000 characters."""

_HYPHEN = re.compile(r"-\n(?<=[a-z]-\n)(?=[a-z])")
_LINE_BREAK = re.compile(r"\n(?<=[^\n]{40}\n)(?=\w)")
"""Line breaks within words and paragraphs, as in PDFs and mails. Models that quote leave them out,
so that lookup, which copies a text as it is, fails at each."""


def flowing(text: str) -> str:
    """A text with each paragraph on one line."""
    return _LINE_BREAK.sub(" ", _HYPHEN.sub("", text))


class DocumentDrafts:
    """What the latest chat may quote. Of the engine's thread.

    All its files are indexed in idle time, what its prompt says with line breaks once an answer has
    begun.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: Texts | None = None
        self._tokens: dict[bytes, NDArray[np.uint32]] = {}
        """Of each file, by the digest of its text."""
        self._indexes: list[TextIndex] = []
        self._indexed: list[bytes] = []
        """Digests of the files in the indexes, in order."""
        self._said: list[str] = []
        self._of_prompt: TextIndex | None = None
        self._work: Generator[None, None, None] | None = None

    def follow(self, texts: Texts | None, said: Iterable[str]) -> bool:
        """Draft from other files, and from texts in the prompt; returns whether there are any.

        Without files all that was read is forgotten. said: the latest text last.
        """
        if texts != self._texts:
            self._texts, self._indexes, self._indexed, self._work = texts, [], [], None
        if texts is None:
            self._tokens.clear()
        self._of_prompt = None
        self._said = [text for text in said if _LINE_BREAK.search(text)]
        return bool(texts or self._said)

    def begin(self) -> None:
        """Index the prompt, and the beginning of files that are new, as an answer has begun."""
        limit = time.monotonic() + _AT_ONCE
        if self._said:
            parts: list[NDArray[np.uint32]] = []
            for part in (part for text in reversed(self._said) for part in self._slices(text)):
                parts.append(part)  # the first one whatever it took: the processor may be busy
                if time.monotonic() >= limit:
                    break
            self._of_prompt, self._said = TextIndex(parts), []
        if self._texts is not None and not self._indexes:
            self.changed()
            self.run(lambda: time.monotonic() < limit)
            if not self._indexes:
                self._indexes = list(self._sorted(self._tokens))

    def changed(self) -> None:
        """Look at the files again in idle time."""
        self._work = None if self._texts is None else self._read(self._texts)

    def due_in(self, idle: float) -> float | None:
        return None if self._work is None else -idle

    def run(self, is_wanted: Callable[[], bool]) -> None:
        try:
            while self._work is not None and is_wanted():
                if next(self._work, self) is self:
                    self._work = None
        except Exception:  # the chat may be gone: no draft is worth an error
            self._work = None

    def refresh(self) -> None:
        """Nothing: what an old index proposes is verified like anything else."""

    def find(self, history: Sequence[int], least: int, count: int) -> tuple[int, list[Occurrence]]:
        """As Corpus.find; of matches of one length, that in the prompt."""
        best: tuple[int, list[Occurrence]] = (0, [])
        for index in filter(None, (self._of_prompt, *self._indexes)):
            best = max(best, index.find(history, least, count), key=lambda found: found[0])
        return best

    def _read(self, texts: Texts) -> Generator[None, None, None]:
        """Read and index all files; yields often."""
        digests: dict[bytes, None] = {}
        room = MOST_TOKENS
        for _, text in texts():
            digest = blake2b(text.encode(errors="replace"), digest_size=16).digest()
            if digest not in self._tokens:
                parts, count = [_NO_TOKENS], 0
                for part in self._slices(text):
                    parts.append(part)
                    count += len(part)
                    if count >= room:
                        break
                    yield
                self._tokens[digest] = np.concatenate(parts)[:room]
            digests[digest] = None
            room -= len(self._tokens[digest])
            if room <= 0:
                break
            yield
        for digest in self._tokens.keys() - digests.keys():
            del self._tokens[digest]
        if list(digests) != self._indexed:
            indexes: list[TextIndex] = []
            for index in self._sorted(digests):
                indexes.append(index)
                yield
            self._indexes, self._indexed = indexes, list(digests)

    def _sorted(self, digests: Iterable[bytes]) -> Iterator[TextIndex]:
        """Indexes of files, each of as many as take a moment to sort."""
        texts: list[NDArray[np.uint32]] = []
        for digest in digests:
            texts.append(self._tokens[digest])
            if sum(map(len, texts)) >= _SORTED:
                yield TextIndex(texts)
                texts = []
        yield TextIndex(texts)

    def _slices(self, text: str) -> Iterator[NDArray[np.uint32]]:
        """The tokens of a text, with its paragraphs as lines."""
        usable = flowing(whole_characters(text))
        for start in range(0, len(usable), _SLICE):
            tokens = self._tokenizer.encode(usable[start : start + _SLICE], special=False)
            yield np.array(tokens, np.uint32)
