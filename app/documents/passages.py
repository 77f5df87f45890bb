"""Passages of a text: parts that can be read alone, cut where the text itself has a seam."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from app.documents.document import Document

MOST_CHARACTERS = 1200
"""Longest passage, of about 300 tokens: a page's third, or a function. Several then fit beside the
talk even in a small context, and one holds enough to be understood."""

_ENOUGH = 600
"""Characters from which a passage ends at the next empty line, or a definition's end."""

_SHORT = 200
"""Characters up to which a section goes on with the next one: a heading alone says nothing."""

_MOST_HEADING = 80
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(\S.*)|(§\s?\d+|(?:\d{1,3}\.)+\d*)\s+(\S.{0,78})$")
"""Of Markdown; or numbered, as in contracts and manuals, on a line of its own."""

_FENCE = re.compile(r" {0,3}(```|~~~)")
_DEFINITION = re.compile(r"(?!else\b|except\b|finally\b|elif\b)[^\s)\]}]")
_LINE = re.compile(r"[^\n\f]*[\n\f]|[^\n\f]+")

_ENDINGS = """
.bash .c .cc .clj .cpp .cs .css .dart .ex .exs .go .h .hpp .hs .java .jl .js .jsx .kt .lua .m .ml
.php .pl .ps1 .py .pyi .r .rb .rs .sass .scala .scss .sh .sql .swift .tcl .ts .tsx .vue .zig .zsh
"""
_CODE = frozenset(_ENDINGS.split())
"""Endings of files whose lines that begin at the margin begin a definition."""

PAGE = "\f"


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a file.

    path: the file's name, as it is shown. start, end: its first and last line, from 1. page: where
    it begins, from 1; 0 where there are none. heading: what it stands under, "" for nothing.
    """

    path: str
    start: int
    end: int
    page: int
    heading: str
    text: str

    @property
    def place(self) -> str:
        """Such as "notes/plan.md, lines 12 to 40" or "report.pdf, page 7"."""
        if self.page:
            return f"{self.path}, page {self.page}"
        if self.start == self.end:
            return f"{self.path}, line {self.start}"
        return f"{self.path}, lines {self.start} to {self.end}"


class _Heading:
    """What lines stand under: headings of Markdown and numbered ones, or the last definition."""

    def __init__(self, *, is_code: bool) -> None:
        self.text = ""
        self._is_code = is_code
        self._above: dict[int, str] = {}
        self._before = ""
        self._fence = ""

    def begins(self, line: str) -> bool:
        """Whether a heading or a definition begins with a line, which is the next one."""
        before, self._before = self._before, line
        if self._is_code:
            is_new = not before.strip() or before[:1] in (" ", "\t")
            begins = is_new and bool(_DEFINITION.match(line))
            if begins:
                self.text = line.strip()[:_MOST_HEADING]
            return begins
        if fence := _FENCE.match(line):
            self._fence = "" if self._fence == fence[1] else self._fence or fence[1]
        found = None if self._fence else _HEADING.match(line)
        if found is None or (found[3] and before.strip()):  # else it is a list
            return False
        level = len(found[1]) if found[1] else len(re.findall(r"\d+", found[3]))
        self._above = {one: text for one, text in self._above.items() if one < level}
        self._above[level] = line.strip().strip("#").strip()[:_MOST_HEADING]
        self.text = " > ".join(self._above[one] for one in sorted(self._above))
        return True


def split(document: Document, path: str) -> list[Passage]:
    """The passages of a document in order: together they are its text.

    They end with a page; before a heading, and before a definition in code, unless they are short;
    at empty lines once they are long enough; else where they would be longer than MOST_CHARACTERS.
    """
    is_code = PurePath(path).suffix.lower() in _CODE
    above, passages, held = _Heading(is_code=is_code), list[Passage](), list[str]()
    page, line, start, size, heading = int(document.pages > 0), 1, 1, 0, ""

    def end(last: int) -> None:
        passages.append(Passage(path, start, max(start, last), page, heading, "".join(held)))
        held.clear()

    for piece in _pieces(document.text):
        begins, before = above.begins(piece), held[-1] if held else ""
        is_seam = (begins and size > _SHORT) or (size > _ENOUGH and not before.strip())
        if held and (is_seam or size + len(piece) > MOST_CHARACTERS or before.endswith(PAGE)):
            end(line - before.endswith("\n"))
            page += bool(page) and before.endswith(PAGE)
        if not held:
            start, size, heading = line, 0, above.text
        held.append(piece)
        size += len(piece)
        line += piece.endswith("\n")
    if held:
        end(line - held[-1].endswith("\n"))
    return passages


def _pieces(text: str) -> Iterator[str]:
    """The lines of a text, and the parts of long ones, each with what ends it."""
    for line in _LINE.findall(text):
        rest = line
        while len(rest) > MOST_CHARACTERS:
            cut = rest.rfind(" ", _ENOUGH, MOST_CHARACTERS) + 1 or MOST_CHARACTERS
            yield rest[:cut]
            rest = rest[cut:]
        yield rest
