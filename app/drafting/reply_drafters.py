"""Drafters that exist for one reply only, under its controller: of predictions and documents."""

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from app.chat.conversation import ReplyOptions
from app.learned.acceptance_memory import AcceptanceMemory
from backends.base.model import Tokenizer
from backends.chat.chat_template import Prompt
from backends.chat.message import whole_characters
from decoding.draft import MOST_DRAFTED, Drafter
from decoding.drafters.forced_tokens import ForcedTokens
from decoding.drafters.predicted_text import PredictedText
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.drafters.retrieval.segment import Occurrence, TextIndex
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import DrafterStatus, drafter_status

# What files and pasted texts say, as one draws on them: each paragraph on one line.

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


_CHARACTERS_PER_TOKEN = 8
"""A context's worth of text, beyond which a predicted text is cut: tokens of text and code have 2
to 5 characters."""


def drafters_of(
    options: ReplyOptions,
    tokenizer: Tokenizer,
    prompt: Prompt,
    n_ctx: int,
    documents: DocumentDrafts | None = None,
) -> Iterator[Drafter]:
    """The drafters of one reply alone. Those that come first are preferred where drafts are equal.

    n_ctx: size of the context. documents: what the files of its chat say; None without any.
    """
    if options.grammar is not None:
        yield ForcedTokens()
    if predicted := _tokens(options.prediction, tokenizer, n_ctx):
        yield PredictedText(predicted, len(prompt.tokens) - prompt.begun)
    if documents is not None:
        yield Retrieval(documents, name="documents", max_draft=MOST_DRAFTED)


def _tokens(text: str, tokenizer: Tokenizer, n_ctx: int) -> list[int]:
    """Tokens of a predicted text; what cannot be encoded is replaced, and never matches."""
    if not text:
        return []
    usable = text[: n_ctx * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode("utf-8")
    return tokenizer.encode(usable, special=False)[:n_ctx]


class ReplyDrafters:
    """Free drafters that know something of one reply, such as its predicted text.

    They take part in the controller's decisions like any others, at the same costs and within the
    same risk budget. Their acceptance is remembered under their names.
    """

    def __init__(self, drafters: Iterable[Drafter] = ()) -> None:
        self._drafters = tuple(drafters)
        self.names = tuple(drafter.name for drafter in self._drafters)
        self._members: tuple[ManagedDrafter, ...] = ()
        self._controller: Controller | None = None

    def join(
        self, controller: Controller | None, memory: AcceptanceMemory | None
    ) -> Controller | None:
        """Take part under the controller of the next step, which is returned.

        It may be another than at the last step, after the session's drafters were changed; with
        none, nothing drafts. memory: of acceptance, of that controller's drafters.
        """
        if self._drafters and controller is not self._controller:
            self._leave()
            self._controller = controller
            if controller is not None:
                self._members = self._members or tuple(
                    ManagedDrafter(drafter, memory.recall(drafter.name) if memory else None)
                    for drafter in self._drafters
                )
                controller.add(self._members)
        return controller

    def end(self, memory: AcceptanceMemory | None) -> tuple[DrafterStatus, ...]:
        """Leave the controller, as the reply has ended; returns the last state of each drafter.

        memory: gets their acceptance; whoever owns it saves it.
        """
        if self._controller is None:
            return ()
        statuses = tuple(drafter_status(one, self._controller.costs) for one in self._members)
        self._leave()
        if memory is not None:
            for managed in self._members:
                facts = {"name": managed.name}
                memory.remember(managed.name, managed.estimates.acceptance, facts)
        return statuses

    def _leave(self) -> None:
        if self._controller is not None:
            self._controller.remove(self._members)
            self._controller = None
