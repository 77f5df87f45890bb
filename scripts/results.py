"""Measures speeds on this machine, and writes the tables of README.md and docs/speed/results.md.

Run where nothing else runs: python -m scripts.results LABEL=MODEL … --machine WORDS

Every way of `specchat bench` answers its questions in turn, with nothing learned before. What is
found takes the place of what docs/speed/measured.json has of this machine and label; without a
model, the tables are only written anew. --file FILE keeps it there, and the tables are printed.
--learned other has the other questions of the full suite answered before, --learned same these.
"""

import argparse
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any

from app.bench.methods import methods
from app.bench.results import PLAIN, Bench
from app.bench.runner import Runner
from app.bench.suites import SUITES, Suite, tasks
from app.bench.wording import decimals
from app.chat.conversation import Conversation
from app.engine.idle_tasks import Indexing
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.history import History
from app.loading.session_options import AUTO_DRAFT, OFF_DRAFT, SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "speed" / "measured.json"
KINDS = ("chat", "code", "copy", "summary", "maths", "document")
_BETWEEN = re.compile(r"(?<=<!-- results: begin -->\n).*?(?=<!-- results: end -->)", re.DOTALL)

Record = dict[str, Any]
"""machine, date, engine, label, learned, rounds; summary: as in a bench's JSON, in part."""


def learn(session: Session, learned: str, suite: Suite) -> None:
    """Answer prompts, each in a chat of its own, and index the chats."""
    chosen, ways = tasks(suite), ((0.8, 900_001), (0.8, 900_002))
    if learned == "other":
        ways = (0.0, 0), (0.8, 0)
        chosen = [task for task in tasks(SUITES["full"]) if task not in chosen]
    with closing(History.open(session.paths.history)) as history:
        for task, (heat, seed) in product(chosen, ways):
            conversation = Conversation("", [Message("user", task.turns[0])])
            reply = Reply(
                Request(conversation, SamplingSettings(heat, seed=seed), suite.max_tokens)
            )
            prompt, _ = session.prompt(reply.request)
            for _ in session.stream(prompt, reply, lambda: False):
                pass
            chat = history.create(session.reference.name)
            history.add(chat, "user", task.turns[0])
            history.add(chat, "assistant", reply.text, "done")
    with closing(Indexing.of(session)) as indexing:
        indexing.run(lambda: True)
    session.redraft(OFF_DRAFT, print)  # what was learned is kept then


def measured(model: str, draft: str, learned: str, suite: Suite) -> Bench:
    """A bench in a home of its own, so that nothing else was learned."""
    with ExitStack() as stack:
        os.environ[HOME_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = SessionOptions(model, draft=AUTO_DRAFT if learned else OFF_DRAFT, ctx=1024)
        session = open_session(options, Paths.of_this_user(), print)
        stack.callback(session.close)
        if learned:
            learn(session, learned, suite)
            scratch = session.paths.data
        ways = methods(session, session.environment(print), draft, scratch, suite)
        stack.callback(ways.close)
        runner = Runner(session, ways, suite)
        for done, planned, _ in runner.run():
            print(f"{done} of {planned}", end="\r", flush=True)
        return runner.bench


def record(bench: Bench, **about: str) -> Record:
    kept = ("method", "temperature", "speedup", "mean_speedup", "mean_speedup_error", "acceptance")
    found = (one for one in bench.as_json()["summary"] if one["method"] != PLAIN)
    rows = [{name: one[name] for name in kept} for one in found]
    about |= {"date": bench.date[:10], "engine": " ".join(bench.backend.split()[:2])}
    return {**about, "rounds": bench.rounds, "summary": rows}


def _cells(row: Record, kinds: Iterable[str]) -> Iterator[str]:
    """Speedups by kind, and their mean with its error."""
    for kind in kinds:
        one = row["speedup"].get(kind)
        yield decimals(one and one["median"], 2)
    doubt = row["mean_speedup_error"]
    yield decimals(row["mean_speedup"], 2) + ("" if doubt is None else f" ± {doubt:.2f}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _groups(records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Records by where and when they were measured, newest first; the README has the first."""
    by_place = groupby(records, lambda one: f"{one['machine']}, {one['date']}, {one['engine']}")
    yield from ((words, [*found]) for words, found in by_place)


def _name(one: Record) -> str:
    rounds = f"{one['rounds']} round{'s' * (one['rounds'] != 1)}"
    return f"{one['label']} ({rounds}{', learned' * bool(one['learned'])})"


def details(records: Sequence[Record]) -> str:
    """The tables of results.md: one for each machine and day."""
    tables: list[str] = []
    for words, found in _groups(records):
        rows = [
            [_name(one), f"{row['method']}, T={row['temperature']:g}", *_cells(row, KINDS)]
            for one in found
            for row in one["summary"]
        ]
        tables.append(f"{words}:\n\n{_table(('model', 'method', *KINDS, 'mean'), rows)}")
    return "\n\n".join(tables)


def summary(records: Sequence[Record]) -> str:
    """The README's table: `auto` at temperature 0."""
    words, found = next(_groups([one for one in records if not one["learned"]]))
    rows: list[list[str]] = []
    for one in found:
        greedy = {row["method"]: row for row in one["summary"] if not row["temperature"]}
        theirs = [_cells(row, ()) for name, row in greedy.items() if name.startswith("llama-cpp")]
        ours = _cells(greedy[AUTO_DRAFT], ("copy", "summary", "chat"))
        rows.append([_name(one), *ours, *(next(iter(theirs), "-"))])
    head = ("model", "copying", "summaries", "chat", "mean of 6 kinds", "llama-cpp-python's lookup")
    return f"On {words}:\n\n{_table(head, rows)}"


def write(page: Path, text: str) -> None:
    """Put a text between the marks of a page."""
    whole = page.read_text(encoding="utf-8")
    page.write_text(_BETWEEN.sub(lambda _: f"\n{text}\n\n", whole), encoding="utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Measure models, keep what was found, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="LABEL=MODEL")
    parser.add_argument("--machine", default="this machine")
    parser.add_argument("--size", type=int, nargs=3, default=(3, 2, 128))
    parser.add_argument("--draft", default=AUTO_DRAFT)
    parser.add_argument("--learned", choices=("", "other", "same"), default="")
    parser.add_argument("--file", type=Path, default=MEASURED)
    given = parser.parse_args(words)
    size = dict(zip(("prompts", "rounds", "max_tokens"), given.size, strict=True))
    suite = replace(SUITES["quick"], **size, seconds=math.inf)
    kept: list[Record] = json.loads(given.file.read_text("utf-8")) if given.file.exists() else []
    for word in given.models:
        label, _, model = word.rpartition("=")
        bench = measured(model, given.draft, given.learned, suite)
        about = {"machine": given.machine, "label": label or bench.model, "learned": given.learned}
        others = [one for one in kept if any(one[name] != about[name] for name in about)]
        kept = sorted([*others, record(bench, **about)], key=itemgetter("date"), reverse=True)
        lines = ",\n".join(map(json.dumps, kept))
        given.file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    if given.file == MEASURED:
        write(ROOT / "README.md", summary(kept))
        write(MEASURED.with_name("results.md"), details(kept))
    else:
        print(details(kept), summary(kept), sep="\n\n")


if __name__ == "__main__":
    main()
