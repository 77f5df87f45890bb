"""Reading all of many texts in turns: parts that fit the context, notes on each, then an answer."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.chat.attachments import Attachment, AttachmentKind, block
from app.chat.conversation import Conversation
from app.wording import counted
from backends.base import UsageError
from backends.chat.message import Message
from backends.chat.reply_form import split

Count = Callable[[str], Awaitable[int]]
"""Counts the tokens of a text."""

Texts = Sequence[tuple[str, str]]
"""Each with the name of its file."""

_PART = (
    "This is part {number} of {count} of all that is attached. The question about all of it is:\n\n"
    "{question}\n\n"
    "Note what this part says towards the answer: each item, name and figure, with its file. Do "
    "not answer for the other parts. If it says nothing towards the answer, write only: nothing."
)

_TEXT_SHARE = 0.75
"""Of the context, for what is read at once; the notes on it get half of the rest."""

_TEMPLATE = 64
"""Tokens that a chat template may add."""

_FILL = 0.9
"""Of the room, that a part of a long text is cut for: its tokens are not spread evenly."""

_MOST_SPLITS = 12
_MOST_NAMES = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """How all is read. parts: of files, or of notes. tokens: of each. rest: those of a note."""

    question: str
    parts: tuple[tuple[Attachment, ...], ...]
    tokens: tuple[int, ...]
    room: int
    note_tokens: int

    @classmethod
    async def of(cls, question: str, system: str, texts: Texts, n_ctx: int, count: Count) -> "Plan":
        """Cut texts into parts, in order: short files together, long ones at the ends of lines.

        Raises:
            UsageError: the question leaves no room, there is no text, or notes grow no shorter.
        """
        frame = await count(system + _PART.format(number=999, count=999, question=question))
        room = int(n_ctx * _TEXT_SHARE) - frame - _TEMPLATE
        if room < n_ctx // 4:
            raise UsageError("the question fills the context", "", "/context N enlarges it.")
        pieces = list[tuple[Attachment, int]]()
        for name, text in texts:
            pieces += await _cut(name, text, room, count) if text.strip() else []
        parts, tokens = list[list[Attachment]](), list[int]()
        for piece, size in pieces:
            if not parts or tokens[-1] + size > room:
                parts.append([])
                tokens.append(0)
            parts[-1].append(piece)
            tokens[-1] += size
        if not parts:
            raise UsageError("no text is attached", "", "Name some: @FILE or @FOLDER/.")
        if len(parts) >= max(2, len(texts)) and all(_OWN.match(name) for name, _ in texts):
            raise UsageError("the notes do not fit the context", "", "/context N enlarges it.")
        return cls(question, tuple(map(tuple, parts)), tuple(tokens), room, n_ctx // 8)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is read at once."""
        return len(self.parts) == 1

    def label(self, number: int) -> str:
        return f"part {number} of {len(self.parts)}"

    @property
    def outline(self) -> Attachment:
        """What is in each part: the same only for the same texts and the same cuts."""
        lines = [
            f"{number}. {', '.join(one.name for one in part)} ({_digest(part)})"
            for number, part in enumerate(self.parts, 1)
        ]
        name = f"{counted(len(self.parts), 'part')} of what is read"
        return Attachment(AttachmentKind.FILE, name, "\n".join(lines))

    def conversation(self, number: int, system: str) -> Conversation:
        """What the notes on a part answer."""
        told = _PART.format(number=number, count=len(self.parts), question=self.question)
        blocks = [block(one) for one in self.parts[number - 1]]
        return Conversation(system, [Message("user", "\n\n".join([*blocks, told]))])

    def notes(self, answers: Sequence[str]) -> tuple[Attachment, ...]:
        """The notes as the question is answered from them; those that say nothing are left out."""
        found = list[Attachment]()
        for number, answer in enumerate(answers, 1):
            note = split(answer).answer.strip()
            if note.strip(" .*\n").lower() not in ("", "nothing"):
                of = ", ".join(one.name for one in self.parts[number - 1])[:_MOST_NAMES]
                name = f"notes on {self.label(number)}"
                found.append(Attachment(AttachmentKind.FILE, name, f"Of {of}:\n\n{note}"))
        if not found and len(answers) == len(self.parts):
            nothing = f"None of {counted(len(answers), 'part')} says anything towards the answer."
            found.append(Attachment(AttachmentKind.FILE, "notes on all parts", nothing))
        return tuple(found)

    def seconds(self, begin: int, prompt_rate: float | None, rate: float | None) -> float | None:
        """Time for the parts from one on and the answer, if all notes are as long as they may be.

        prompt_rate, rate: tokens a second of reading and of writing; None if either is unknown.
        """
        if not prompt_rate or not rate:
            return None
        left = self.tokens[begin - 1 :]
        written = (len(left) + 1) * self.note_tokens
        return (sum(left) + len(self.parts) * self.note_tokens) / prompt_rate + written / rate


def is_of_reading(one: Attachment) -> bool:
    """Whether an attachment is notes or an outline, and no file."""
    return one.kind is AttachmentKind.FILE and bool(_OWN.match(one.name))


_OWN = re.compile(r"notes on (?:part \d+ of \d+|all parts)\Z|\d+ parts of what is read\Z")


def _digest(part: Iterable[Attachment]) -> str:
    text = "\0".join(f"{one.name}\0{one.text}" for one in part)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


async def _cut(
    name: str, text: str, room: int, count: Count, line: int = 1, depth: int = 0
) -> list[tuple[Attachment, int]]:
    """A text in pieces that fit, each with its tokens; those of a long one have their lines."""
    lines = f", lines {line} to {line + text.rstrip(chr(10)).count(chr(10))}" if depth else ""
    piece = Attachment(AttachmentKind.PASSAGE, name + lines, text)
    tokens = await count(block(piece))
    if tokens <= room or depth == _MOST_SPLITS or len(text) < 2:
        return [(piece, tokens)]
    ends = _ends(text, max(2, -(-tokens // max(1, int(room * _FILL)))))
    pieces = list[tuple[Attachment, int]]()
    for start, end in pairwise([0, *ends]):
        pieces += await _cut(name, text[start:end], room, count, line, depth + 1)
        line += text.count("\n", start, end)
    return pieces


def _ends(text: str, parts: int) -> list[int]:
    """Where equal parts of a text end: after a line, else after a word, if there is one."""
    size, ends, start = -(-len(text) // parts), list[int](), 0
    while len(text) - start > size:
        end = start + size
        start = text.rfind("\n", start + 1, end) + 1 or text.rfind(" ", start + 1, end) + 1 or end
        ends.append(start)
    return [*ends, len(text)]
