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

Seen = dict[tuple[str, int], int]
"""The highest number seen of each answer, by its question and its version (0: no label)."""


def note(lines: Sequence[str], seen: Seen) -> None:
    """Add what is on a screen."""
    question, version, highest = "", 0, 0
    for line in [*(line[:_CHAT_COLUMNS].strip() for line in lines), "▌"]:
        if line.startswith(("▌", "╭")):
            if question:
                key = question, version
                seen[key] = max(seen.get(key, 0), highest)
            asked = QUESTION.findall(line)
            question = asked[-1] if asked and line.startswith("▌") else ""
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
    """What was seen and is not in the history, in words."""
    saved = _saved(path)
    for (question, version), highest in seen.items():
        versions = saved.get(question)
        if versions is None:
            if question not in unsent:
                yield f"{question!r} is lost"
        elif highest:
            answers = [max(counts, default=0) for counts in versions]
            if len(versions) == 1 and 0 < version <= len(versions[0]):
                answers = [versions[0][version - 1]]
            if max(answers, default=0) < highest:
                yield f"of {question!r}, version {version}, {highest} was seen, saved: {versions}"


def _saved(path: Path) -> Mapping[str, list[list[int]]]:
    """How far each answer counts, by question: a list for each message that asks it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, parent, role, text FROM messages").fetchall()
        queued = connection.execute("SELECT text FROM queue").fetchall()
    found: dict[str, list[list[int]]] = {}
    texts = [*(text for (text,) in queued), *(row[3] for row in rows if row[2] == "user")]
    for text in texts:  # one that was taken back may have become part of another
        for question in QUESTION.findall(text):
            found.setdefault(question, [])
    for number, _, role, text in rows:
        if role == "user" and (asked := QUESTION.findall(text)):
            answers = [row[3] for row in rows if row[1] == number and row[2] == "assistant"]
            found[asked[-1]].append([len(one.split()) for one in answers])
    return found
