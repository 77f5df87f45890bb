"""Answers as a screen showed them, and whether the history has all of each."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

QUESTION = re.compile(r"question x\d+x")
_LABEL = re.compile(r"‹(\d+)/\d+›$")
_COUNTING = re.compile(r"[\d █]+")
_CHAT_COLUMNS = 79
_BEGIN = re.compile(r" {0,2}[▌╭]")
"""A question, what is selected, or the prompt; a notice begins farther to the right."""

Seen = dict[tuple[str, int], int]
"""The highest number seen of each answer, by its question and its version (0: no label)."""


def note(lines: Sequence[str], seen: Seen) -> None:
    """Add what is on a screen."""
    question, version, highest = "", 0, 0
    for line in [*(line[:_CHAT_COLUMNS].rstrip() for line in lines), "╭"]:
        if _BEGIN.match(line):
            if question:
                key = question, version
                seen[key] = max(seen.get(key, 0), highest)
            asked = QUESTION.findall(line)
            is_clear = line.count("▌") == 1  # a second one is a notice, which may name another
            question = asked[-1] if asked and is_clear else ""
            version, highest = 0, 0
        elif _COUNTING.fullmatch(line):
            highest = max([highest, *map(int, re.findall(r"\d+", line))])
        elif label := _LABEL.search(line):
            version = int(label[1])


def add(more: Seen, seen: Seen) -> None:
    """Add what was seen at another moment."""
    for answer, highest in more.items():
        seen[answer] = max(seen.get(answer, 0), highest)


def faults(path: Path, seen: Seen, unsent: str) -> Iterator[str]:
    """What was seen and is not in the history, and answers there that have a hole, in words."""
    from scripts.models.counting_model import numbers  # NumPy's threads must not be forked

    saved = _saved(path)
    for (question, version), highest in seen.items():
        versions = saved.get(question)
        if versions is None:
            if question not in unsent:
                yield f"{question!r} is lost"
        elif highest:
            answers = [answer for one in versions for answer in one]
            if len(versions) == 1 and 0 < version <= len(versions[0]):
                answers = [versions[0][version - 1]]
            counts = [len(answer.split()) for answer in answers]
            if max(counts, default=0) < highest:
                yield f"of {question!r}, version {version}, {highest} was seen, saved: {counts}"
    for question, versions in saved.items():
        for answer in (answer for one in versions for answer in one):
            try:
                numbers(answer)
            except ValueError as error:
                yield f"an answer to {question!r} {error}"


def _saved(path: Path) -> Mapping[str, list[list[str]]]:
    """The answers to each question: a list for each message that asks it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, parent, role, text FROM messages").fetchall()
        queued = connection.execute("SELECT text FROM queue").fetchall()
    found: dict[str, list[list[str]]] = {}
    texts = [*(text for (text,) in queued), *(row[3] for row in rows if row[2] == "user")]
    for text in texts:  # one that was taken back may have become part of another
        for question in QUESTION.findall(text):
            found.setdefault(question, [])
    for number, _, role, text in rows:
        if role == "user" and (asked := QUESTION.findall(text)):
            answers = [row[3] for row in rows if row[1] == number and row[2] == "assistant"]
            found[asked[-1]].append(answers)
    return found
