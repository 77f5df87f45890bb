"""The passages that were read for an answer, and its citations of them."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

from app.chat.attachments import Attachment, AttachmentKind
from app.wording import counted
from backends.chat.reply_form import split

_NAME = re.compile(
    r"\[(\d{1,9})\] (.+?)(?:, (?:lines? (\d{1,9})(?: to \d{1,9})?|page (\d{1,9})))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that was read. number: in its chat, by which it is cited. place: where it stood.

    line, page: where it begins, from 1; 0 where that is unknown.
    """

    number: int
    place: str
    path: str
    line: int
    page: int
    text: str


def sources_of(attachments: Iterable[Attachment]) -> dict[int, Source]:
    """The passages among attachments by their numbers; one that has none is left out."""
    found: dict[int, Source] = {}
    for one in attachments:
        if one.kind is AttachmentKind.PASSAGE and (name := _NAME.fullmatch(one.name)):
            number, path, line, page = name.groups()
            place = one.name.partition("] ")[2]
            at = int(line or 0), int(page or 0)
            found[int(number)] = Source(int(number), place, path, *at, one.text)
    return found


def in_words(sources: Collection[Source]) -> str:
    """Such as "3 passages of 2 files"; empty if there are none."""
    files = counted(len({one.path for one in sources}), "file")
    return f"{counted(len(sources), 'passage')} of {files}" if sources else ""


_OF_ALL = re.compile(
    r"\b(?:how many|count(?! on)|number of|(?<!at )(?<!after )(?<!above )all\b(?! right)|every"
    r"|each\b|which of|total|wie ?viele?|zähl|anzahl|alle[mnrs]?\b|sämtlich|jede[mnrs]?\b|insgesamt"
    r"|welche[rs]? (?:davon|der|von)|combien|nombre de|tou(?:s|tes)\b|chaque|lesquel|énumère"
    r"|cuánt[oa]s|número de|tod[oa]s\b|cada\b|enumera|cuáles de)",
    re.IGNORECASE,
)
"""Words of questions about all there is, in English, German, French and Spanish."""


def asks_about_all(question: str) -> bool:
    """Whether some passages may not be enough for a question: a guess, by its words alone."""
    return bool(_OF_ALL.search(question))


def read_of_all(sources: Collection[Source], in_all: int) -> str:
    """What was read, where the question is about all; in_all: passages there are, 0 if unknown."""
    read = len(sources)
    if in_all > read:
        return f"only {read} of {in_all:,} passages were read"
    return f"only {counted(read, 'passage')} {'was' if read == 1 else 'were'} read"


def told(
    read: Collection[Source], answer: str, known: frozenset[int], in_all: int = 0
) -> list[str]:
    """What an answer was taken from, where it is not folded: a line for each passage, and faults.

    read: for this question. known: numbers of these and of those before. in_all: as read_of_all.
    """
    lines = [f"[{one.number}] {one.place}" for one in read]
    part = read_of_all(read, in_all) if read else ""
    return [*lines, *filter(None, [part, unknown_in_words(answer, known)])]


# Citations: [3] names a passage; several stand in one pair of brackets, as in [1, 4].
#
# They are read as a part of Markdown, so none is found in code, a formula or the address of a link.

KNOWN = "passages"
"""Under this name the parser's environment holds the numbers of the passages; none: no citation."""

NUMBER = "number"
"""Under this name a citation's token holds the number that it cites."""

_CITED = re.compile(r"\[(\d{1,3}(?:(?:[,;]|–| |-){1,2}\d{1,3})*)\](?!\()", re.ASCII)  # noqa: RUF001
_INDEXED = re.compile(r"[A-Za-z0-9_)\[](?:\[[^\[\]]{1,16}\])*\Z")
"""The end of what an index follows, as in a[1][2]; many scripts put no space before a citation."""

_LOOK_BACK = 64


def _read_citation(state: StateInline, silent: bool) -> bool:
    known: Collection[int] = state.env.get(KNOWN, ())
    found = _CITED.match(state.src, state.pos) if known else None
    if found is None or _INDEXED.search(state.src[max(0, state.pos - _LOOK_BACK) : state.pos]):
        return False
    numbers = [int(one) for one in re.findall(r"\d+", found[1])]
    is_single, are_known = len(numbers) == 1, all(one in known for one in numbers)
    is_other = not is_single or not numbers[0] or found[1] in state.env.get("references", ())
    if not are_known and is_other:  # a list of numbers, or a link
        return False
    if not silent:
        for part in [found[0]] if is_single else re.split(r"(\d+)", found[0]):
            cited = re.search(r"\d+", part)
            token = state.push("citation" if cited else "text", "", 0)
            token.content, token.meta = part, {NUMBER: int(cited[0])} if cited else {}
    state.pos = found.end()
    return True


_MATHS = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def _read_maths(state: StateInline, silent: bool) -> bool:
    r"""Read \(a formula\), of which no sign is markup."""
    found = _MATHS.match(state.src, state.pos)
    if found is not None:
        if not silent:
            state.push("maths", "", 0).content = (found[1] or found[2]).strip()
        state.pos = found.end()
    return found is not None


PARSER = MarkdownIt("gfm-like", {"html": False})
"""Reads the Markdown of answers. It shows HTML as it is written: a terminal cannot render it."""

PARSER.inline.ruler.before("escape", "maths", _read_maths)
PARSER.inline.ruler.before("link", "citation", _read_citation)


@lru_cache(maxsize=64)
def citations(answer: str, known: frozenset[int]) -> tuple[int, ...]:
    """The numbers that an answer cites, in order, each as often as it does.

    known: numbers of the passages that the model has read; without any nothing is a citation.
    """
    if not known or "[" not in answer:
        return ()
    tokens = PARSER.parse(split(answer).answer, {KNOWN: known})
    inline = (child for token in tokens for child in token.children or ())
    return tuple(child.meta[NUMBER] for child in inline if child.type == "citation")


def unknown_in_words(answer: str, known: frozenset[int]) -> str:
    """The citations of an answer that name no passage; empty if there are none."""
    unknown = [one for one in citations(answer, known) if one not in known]
    named = ", ".join(f"[{one}]" for one in sorted(set(unknown)))
    if len(unknown) > 1:
        return f"{len(unknown)} citations name no passage: {named}"
    return f"{named} names no passage" if unknown else ""
