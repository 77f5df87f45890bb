"""Kills the app and the commands at random moments, and checks that no data is lost.

Run: uv run python -m scripts.campaigns.kill_app [--kills N] [--seed N] [--most-lost S] [--folder F]

It ends with 1 on a violation.

A model that counts answers, so that a text tells how far it came. The app runs in a terminal; what
counts as typed or said is what the terminal showed. After each kill:
- the database passes SQLite's integrity check, and every answer that was seen whole is there whole;
- an unfinished answer has all that was shown a second before; so has what was typed and not sent;
- whatever keys were pressed while it answered, all that the screen showed of each answer is in the
  history, under its question and as its version;
- states, statistics, index, learned figures, results and downloads open without damage;
- a program that was asked to end (SIGTERM, SIGHUP) did, with its code, and gave the terminal back;
- no child process goes on.
Now and then the app is opened and closed in order, after which nothing half written is left.
"""

import argparse
import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.campaigns import observed as forked_program
from scripts.campaigns.observed import (
    QUESTION,
    SYNCHRONISES,
    OverdueError,
    Program,
    Screen,
    Seen,
    add,
    faults,
    faults_of,
    half_written,
    note,
)

READY = "Ask anything"
WHOLE = "cut at "
TOKENS = 400
MOST_LOST_SECONDS = 1.0
"""What a save may be behind where no other program keeps the app waiting."""

REPOSITORY = "maker/Counting-GGUF"
FILE = "Counting-F32.gguf"
GIVEN_BACK = (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h")
_RUN = re.compile(r"(?<!\S)\d+(?!\S)")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_MODULES = (
    "app.cli.main",
    "specchat",
    "app.tui.app",
    "app.chat.unsent",
    "backends.llamacpp",
    "backends.llamacpp.loading",
    "huggingface_hub",
    "textual.drivers.linux_driver",
)


@dataclass(slots=True)
class Expected:
    """What has to be found after a kill. typed: words with the time at which each was shown."""

    question: str = ""
    is_whole: bool = False
    since: float = 0.0
    """When the question was sent."""
    typed: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    seen: Seen = field(default_factory=Seen)
    story: list[str] = field(default_factory=list[str])
    """What was pressed and seen, in order, to tell with a violation."""


@dataclass(slots=True)
class Campaign:
    """Kills on one home, and what was found."""

    folder: Path
    model: Path
    hub: str
    random: random.Random
    most_lost: float = MOST_LOST_SECONDS
    """Seconds that a save may be behind."""
    kills: Counter[str] = field(default_factory=Counter[str])
    signals: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    lost_answer: list[float] = field(default_factory=list[float])
    lost_typing: list[float] = field(default_factory=list[float])
    whole: dict[str, int] = field(default_factory=dict[str, int])
    """Questions whose answers were seen whole, and the tokens of these."""
    asked: int = 0
    presses: int = 0
    seen: int = 0
    """Answers that a screen showed while keys were pressed."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def program(self, *arguments: str) -> Program:
        """Begin specchat with arguments."""
        from specchat import main

        names = ("HOME", "USERPROFILE", "HF_HOME", "LLAMA_CACHE", "OLLAMA_MODELS")
        environment = {name: str(self.folder / name.lower()) for name in names}
        environment |= {
            "SPECCHAT_HOME": str(self.home),
            "SPECCHAT_THREADS": "1",
            "SPECCHAT_TEMPERATURE": "0",
            "SPECCHAT_MAX_TOKENS": str(TOKENS),
            "HF_ENDPOINT": self.hub,
            "NO_PROXY": "127.0.0.1",
            "TERM": "xterm-256color",
        }
        return forked_program.start(main, ["specchat", *arguments], environment)

    def app(self) -> Program:
        """Open the app, up to its first picture."""
        draft = self.random.choice(("auto", "off", "lookup", "lookup,retrieval,ngram"))
        program = self.program("--model", str(self.model), "--draft", draft)
        try:
            program.wait_for(READY)
        except OverdueError:
            program.close()
            raise
        return program

    def question(self) -> str:
        """One that was never asked before."""
        self.asked += 1
        return f"question x{self.asked}x"

    def say(self, what: str) -> None:
        """Note a violation."""
        self.violations.append(what)
        print(f"VIOLATION: {what}", flush=True)


def number_shown(text: str) -> int:
    """How far the screen counted: the highest of three numbers that follow each other."""
    said = [int(one) for one in _RUN.findall(text) if len(one) < 6]
    triples = zip(said, said[1:], said[2:], strict=False)
    return max((c for a, b, c in triples if a + 1 == b and b + 1 == c), default=0)


# Activities: each brings a program to some point, and returns it with what must be found.


def typing(campaign: Campaign) -> tuple[Program, Expected]:
    """Words are typed one after another, in the app."""
    program, expected = campaign.app(), Expected()
    seconds = campaign.random.uniform(0.2, campaign.most_lost + 1.5)
    _type_words(campaign, program, expected, seconds)
    return program, expected


def _type_words(campaign: Campaign, program: Program, expected: Expected, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        word = f"w{campaign.random.randrange(10**6):06d}"
        program.type(f"{word} ")
        typed = time.monotonic()
        program.read(campaign.random.uniform(0.02, 0.3))
        shown = [when for when, text in program.parts if when >= typed and word in text]
        if shown:
            expected.typed.append((shown[0], word))
        else:
            expected.typed.append((float("inf"), word))


def _ask(campaign: Campaign, program: Program, before: str = "") -> Expected:
    question = campaign.question()
    expected = Expected(question, since=time.monotonic())
    _send(program, f"{before}{question}")
    return expected


def _send(program: Program, text: str) -> None:
    """Type it and send it once it is shown: what is offered meanwhile would take the Enter."""
    started = time.monotonic()
    program.type(text)
    program.wait_for(text[-12:], started)
    program.read(0.1)
    program.type("\r")


def prefilling(campaign: Campaign) -> tuple[Program, Expected]:
    """A long prompt is read."""
    program = campaign.app()
    file = campaign.folder / "long.txt"
    file.write_text("lorem ipsum " * 300, encoding="utf-8")
    expected = _ask(campaign, program, f"@{file} ")
    program.wait_for("▸", expected.since)  # the file below the question that is sent
    program.read(campaign.random.uniform(0.0, 1.2))
    return program, expected


def answering(campaign: Campaign) -> tuple[Program, Expected]:
    """An answer is at work; now and then something is typed meanwhile."""
    program = campaign.app()
    expected = _ask(campaign, program)
    if campaign.random.random() < 0.3:
        _type_words(campaign, program, expected, campaign.random.uniform(0.3, 1.5))
    else:
        program.read(campaign.random.uniform(0.0, 2.5))
    return program, expected


def saving(campaign: Campaign) -> tuple[Program, Expected]:
    """An answer is whole: it is saved, then its state is, and the index, which takes some time."""
    program = campaign.app()
    expected = _ask(campaign, program)
    program.wait_for(WHOLE, expected.since)
    program.read(
        campaign.random.choice((0.0, 0.1, 1.2, 2.5, 3.0)) + campaign.random.uniform(0, 0.3)
    )
    return program, expected


def read_by_others(campaign: Campaign) -> tuple[Program, Expected]:
    """Another command reads the chats between two answers of the app."""
    program = campaign.app()
    first = _ask(campaign, program)
    program.wait_for(WHOLE, first.since)
    program.read(campaign.random.uniform(0.0, 4.0))  # the index of earlier chats follows
    reader = campaign.program("chats", "list")
    try:
        reader.wait()
    finally:
        reader.close()
    pressed = time.monotonic()
    program.type("\x0e")  # a new chat: the first answer's ending is not painted again
    program.wait_for("New chat", pressed)
    program.read(0.5)
    expected = _ask(campaign, program)
    program.read(campaign.random.uniform(0.3, 2.5))
    return program, expected


def quitting(campaign: Campaign) -> tuple[Program, Expected]:
    """The app is left while it answers, and killed while it ends."""
    program = campaign.app()
    expected = _ask(campaign, program)
    program.read(campaign.random.uniform(0.2, 0.8))
    program.type("\x11")
    program.read(campaign.random.uniform(0.0, 0.4))
    return program, expected


_KEYS = {
    "\x12": 4,  # Ctrl+R
    "\x1b": 2,
    "\x03": 2,  # Ctrl+C
    "\x1a": 3,  # Ctrl+Z
    "\x19": 2,  # Ctrl+Y
    "\x0e": 1,  # Ctrl+N
    "\x14": 2,  # Ctrl+T
    "\x1b[A": 2,
    "\t": 1,
    "\x1b[D": 1,
    "\x1b[C": 1,
    "\r": 2,
    "edit": 3,
    "leave the editing": 2,
    "ask": 4,
}


def pressing(campaign: Campaign) -> tuple[Program, Expected]:
    """Keys are pressed at random moments of answers; all that the screen shows is noted.

    What an unfinished answer showed in the last second need not be saved yet.
    """
    program = campaign.app()
    program.type(SYNCHRONISES)
    expected, screen = Expected(), Screen(forked_program.COLUMNS, forked_program.ROWS)
    _press(campaign, program, "ask")
    program.wait_for("tok/s")
    taken = 0
    looks: list[tuple[float, Seen]] = []
    for _ in range(campaign.random.randrange(4, 24)):
        goes_on = program.read(campaign.random.choice((0.02, 0.1, 0.5, 1.2)) + 0.15)
        raw = program.raw[taken:]
        taken += len(raw)
        screen.write(bytes(raw))
        looked: Seen = {}
        note(screen.lines, looked)
        looks.append((time.monotonic(), looked))
        add(dict.fromkeys(looked, 0), expected.seen)  # a question is saved before it is shown
        if not goes_on:  # Ctrl+C twice
            break
        key = campaign.random.choices(list(_KEYS), list(_KEYS.values()))[0]
        expected.story.append(f"{time.monotonic():.2f} {looked} {key!r}")
        _press(campaign, program, key)
        campaign.presses += 1
    for at, looked in looks:
        if at <= time.monotonic() - campaign.most_lost:
            add({answer: shown for answer, shown in looked.items() if shown}, expected.seen)
    return program, expected


def _press(campaign: Campaign, program: Program, key: str) -> None:
    """Press a key, or the keys of a longer action."""
    if key in ("edit", "leave the editing"):
        program.type("\x1b[20~")
        program.read(0.2)
    if key in ("ask", "edit"):
        program.type(f"\x1b[F {campaign.question()}")  # End: not within what stands there
        program.read(0.2)
        program.type("\r")
    else:
        program.type("\x1b" if key == "leave the editing" else key)


def asking(campaign: Campaign) -> tuple[Program, Expected]:
    """`specchat ask`, at any moment from its start."""
    arguments = ["ask", campaign.question(), "--model", str(campaign.model)]
    program = campaign.program(*arguments)
    program.read(campaign.random.uniform(0.0, 2.0))
    return program, Expected()


def tuning(campaign: Campaign) -> tuple[Program, Expected]:
    """`specchat models tune`, at any moment."""
    program = campaign.program("models", "tune", str(campaign.model))
    program.read(campaign.random.uniform(0.0, 4.0))
    return program, Expected()


def drafting(campaign: Campaign) -> tuple[Program, Expected]:
    """A self-drafter is made for an answer."""
    for path in (campaign.home / "cache" / "self-drafts").glob("*.gguf"):
        path.unlink()
    arguments = ["ask", campaign.question(), "--model", str(campaign.model)]
    program = campaign.program(*arguments, "--draft", campaign.random.choice(("self:q8_0", "self")))
    program.read(campaign.random.uniform(0.0, 1.5))
    return program, Expected()


def pulling(campaign: Campaign) -> tuple[Program, Expected]:
    """`specchat models pull`; what is whole is removed, to be fetched again."""
    if list((campaign.folder / "hf_home").glob("hub/*/snapshots/*/*")):
        shutil.rmtree(campaign.folder / "hf_home")
    program = campaign.program("models", "pull", f"{REPOSITORY}:{FILE}")
    program.read(campaign.random.uniform(0.0, 0.8))
    return program, Expected()


def downloading(campaign: Campaign) -> tuple[Program, Expected]:
    """A model is downloaded in the app while it answers."""
    if list((campaign.folder / "hf_home").glob("hub/*/snapshots/*/*")):
        shutil.rmtree(campaign.folder / "hf_home")
    program = campaign.app()
    _send(program, f"/model {REPOSITORY}:{FILE}")
    program.read(campaign.random.uniform(0.0, 0.3))
    expected = _ask(campaign, program)
    program.read(campaign.random.uniform(0.0, 0.8))
    return program, expected


Activity = Callable[[Campaign], tuple[Program, Expected]]
ACTIVITIES: dict[Activity, int] = {
    typing: 18,
    prefilling: 12,
    answering: 18,
    saving: 8,
    read_by_others: 8,
    quitting: 6,
    asking: 8,
    tuning: 6,
    drafting: 4,
    pulling: 6,
    downloading: 6,
    pressing: 20,
}
_IN_APP = {typing, prefilling, answering, saving, read_by_others, quitting, downloading, pressing}


def kill_once(campaign: Campaign, activities: Mapping[Activity, int] = ACTIVITIES) -> None:
    """One program, one kill, and everything checked."""
    chosen = campaign.random
    activity = chosen.choices(list(activities), list(activities.values()))[0]
    number = chosen.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP), (8, 1, 1))[0]
    name = activity.__name__
    campaign.kills[name] += 1
    campaign.signals[number.name] += 1
    place = f"kill {campaign.kills.total()} ({name}, {number.name})"
    try:
        program, expected = activity(campaign)
    except OverdueError as error:
        campaign.say(f"{place}: {error}")
        return
    try:
        closes = activity is pressing and chosen.random() < 0.2
        sent = program.hang_up() if closes else program.end_by(number)
        try:
            code = program.wait()
        except OverdueError as error:
            campaign.say(f"{place}: {error}")
            return
        # It may have ended by itself, before.
        if closes:
            number = signal.SIGHUP
        if number != signal.SIGKILL and code not in (128 + number, 0):
            campaign.say(f"{place}: it ended with {code}: {program.shown()[-400:]!r}")
        is_told = number != signal.SIGKILL and not closes
        if is_told and activity in _IN_APP and code == 128 + number:
            missing = [one for one in GIVEN_BACK if one not in program.raw]
            if missing:
                campaign.say(f"{place}: the terminal was not given back: {missing}")
        if "Traceback" in program.shown():
            campaign.say(f"{place}: a traceback: {program.shown()[-2000:]!r}")
        if orphans := program.orphans():
            campaign.say(f"{place}: goes on: {orphans}")
        for fault in (
            *_chats(campaign, program, expected, sent),
            *_seen(campaign, expected),
            *_typed(campaign, expected, sent),
            *_files(campaign),
        ):
            campaign.say("\n  ".join([f"{place}: {fault}", *expected.story]))
    finally:
        program.close()


# Checks


def _answers(path: Path) -> dict[str, str]:
    """Answers of the last three chats by their question, "" where there is none or it waits."""
    from app.history import History

    answers: dict[str, str] = {}
    with contextlib.closing(History.open(path)) as history:
        for chat in history.chats(limit=3):
            waiting = [QUESTION.search(one.text) for one in history.queue(chat.number)]
            answers |= {asked[0]: "" for asked in waiting if asked}
            messages = history.messages(chat.number)
            for message in messages:
                if message.role == "user" and (asked := QUESTION.search(message.text)):
                    after = [one.text for one in messages if one.parent == message.number]
                    answers[asked[0]] = after[0] if after else ""
    return answers


def _chats(campaign: Campaign, program: Program, expected: Expected, sent: float) -> Iterator[str]:
    from scripts.models.counting_model import numbers

    path = campaign.home / "data" / "chats.sqlite3"
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            yield f"the database is damaged: {found[:3]}"
    answers = _answers(path)
    if not expected.question:
        return
    question, shown = expected.question, program.shown(sent, expected.since)
    if question not in answers:
        unsent = "".join(path.read_text() for path in path.parent.glob("unsent*.txt"))
        if question not in unsent and question in program.shown(
            sent - campaign.most_lost, expected.since
        ):
            yield f"the question is lost: {question[:60]!r}"
        return
    try:
        saved = len(numbers(answers[question]))
    except ValueError as error:
        yield f"a saved answer {error}"
        return
    if WHOLE in shown:
        campaign.whole[question] = TOKENS
        if saved != TOKENS:
            yield f"a whole answer has {saved} of {TOKENS} tokens"
        return
    when = program.first(lambda text: number_shown(text) > saved, expected.since)
    lost = max(0.0, sent - when)
    campaign.lost_answer.append(lost)
    if lost > campaign.most_lost:
        last = program.shown(when, when)[-300:]
        yield f"of an answer {lost:.2f} s are lost ({saved} tokens are there): {last!r}"


def _seen(campaign: Campaign, expected: Expected) -> Iterator[str]:
    path = campaign.home / "data" / "chats.sqlite3"
    if expected.seen and path.exists():
        campaign.seen += len(expected.seen)
        kept = [*path.parent.glob("unsent*.txt"), *path.parent.glob("cleared.json")]
        unsent = "".join(one.read_text() for one in kept)
        yield from faults(path, expected.seen, unsent)


def _typed(campaign: Campaign, expected: Expected, sent: float) -> Iterator[str]:
    """What is typed and not sent, by the app's own reader; it is taken away then."""
    from app.chat.unsent import ComposerDraft
    from app.paths import Paths

    home = campaign.home
    draft = ComposerDraft(Paths(home / "config", home / "data", home / "cache"))
    left = draft.left
    draft.keep("")
    draft.close()
    if not expected.typed:
        return
    lost = [when for when, word in expected.typed if word not in left and when <= sent]
    seconds = sent - min(lost) if lost else 0.0
    campaign.lost_typing.append(seconds)
    if seconds > campaign.most_lost:
        yield f"what was typed {seconds:.2f} s before is lost: {left[-100:]!r} is left"


def _files(campaign: Campaign) -> Iterator[str]:
    yield from faults_of(campaign.home)
    digest = hashlib.sha256(campaign.model.read_bytes()).hexdigest()
    for path in (campaign.folder / "hf_home").glob(f"hub/*/blobs/{digest}"):
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            yield "a download that counts as whole is damaged"


def check_in_order(campaign: Campaign) -> None:
    """Open the app and close it: nothing half written is left then, and nothing is reported."""
    long_ago = time.time() - 3600
    for path in half_written(campaign.home):
        os.utime(path, (long_ago, long_ago))
    try:
        program = campaign.app()
    except OverdueError as error:
        campaign.say(f"opened in order: {error}")
        return
    try:
        program.wait_for("tok/s", _ask(campaign, program).since)
        program.read(3.0)
        program.type("\x11")
        if (code := program.wait()) != 0:
            campaign.say(f"closed in order, it ended with {code}")
        for word in ("set aside", "damaged", "cannot"):
            if word in program.shown():
                campaign.say(f"opened in order, it says {word!r}: {program.shown()[-1500:]!r}")
    except OverdueError as error:
        campaign.say(f"opened in order: {error}")
    finally:
        program.close()
    if left := half_written(campaign.home):
        campaign.say(f"left half written: {[path.name for path in left]}")
    lost = [one for one, count in campaign.whole.items() if _saved(campaign, one) != count]
    if lost:
        campaign.say(f"whole answers are lost: {lost[:5]}")


def _saved(campaign: Campaign, question: str) -> int:
    from scripts.models.counting_model import numbers

    path = campaign.home / "data" / "chats.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            """SELECT after.text FROM messages JOIN messages AS after
            ON after.parent = messages.number WHERE messages.text LIKE ?""",
            (f"%{question}%",),
        ).fetchall()
    return len(numbers(rows[0][0])) if rows else -1


@contextlib.contextmanager
def local_hub(model: Path) -> Generator[str]:
    """A hub in a process of its own, as its threads must not be forked; its address."""
    source = "from scripts.campaigns.kill_app import serve; serve()"
    command = [sys.executable, "-c", source, str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as hub:
        assert hub.stdout is not None
        assert hub.stdin is not None
        yield hub.stdout.readline().strip()
        hub.stdin.close()


def serve() -> None:
    """The hub's process: serve until standard input closes."""
    from tests.fixtures import local_hub as fixture

    hub = fixture.LocalHub()
    hub.repositories[REPOSITORY] = {FILE: Path(sys.argv[1]).read_bytes(), "README.md": b"counts"}
    with fixture.serving(hub) as hub.endpoint, fixture.serving(hub) as hub.storage:
        print(hub.endpoint, flush=True)
        sys.stdin.read()


def summary(campaign: Campaign, seconds: float) -> str:
    """What was done and found."""
    lines = [f"{campaign.kills.total()} kills in {seconds / 60:.1f} minutes, seed as given"]
    lines += [f"  {count:5}  {name}" for name, count in campaign.kills.most_common()]
    lines.append(f"  {campaign.presses} keys pressed, {campaign.seen} answers seen meanwhile")
    lines.append("  " + ", ".join(f"{count} {name}" for name, count in campaign.signals.items()))
    for what, lost in (("answers", campaign.lost_answer), ("typing", campaign.lost_typing)):
        if lost:
            ordered = sorted(lost)
            lines.append(
                f"lost of unfinished {what} ({len(lost)} seen): "
                f"median {ordered[len(lost) // 2]:.2f} s, most {ordered[-1]:.2f} s"
            )
    lines.append(f"{len(campaign.whole)} answers seen whole, all kept whole")
    lines.append(f"{len(campaign.violations)} violations")
    return "\n".join(lines)


def run(kills: int, seed: int, folder: Path, most_lost: float, only: str = "") -> Campaign:
    """Kill so many times; only: the name of the only activity."""
    activities = {one: count for one, count in ACTIVITIES.items() if only in ("", one.__name__)}
    os.environ.update(_ONE_THREAD, TERM="xterm-256color")
    from scripts.models.counting_model import make

    model = make(folder / FILE, 4096, 3)
    with local_hub(model) as hub:
        forked_program.import_all(_MODULES)
        campaign = Campaign(folder, model, hub, random.Random(seed), most_lost)
        for count in range(1, kills + 1):
            kill_once(campaign, activities)
            print(".", end="", flush=True)
            if count % 50 == 0 or count == kills:
                check_in_order(campaign)
                print(f"{count} kills, {len(campaign.violations)} violations", flush=True)
    return campaign


def main() -> None:
    """Run the campaign that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="an activity, such as pressing")
    words = "seconds that a save may be behind; more on a busy machine"
    parser.add_argument("--most-lost", type=float, default=MOST_LOST_SECONDS, help=words)
    parser.add_argument("--folder", type=Path, help="where the home of the programs is, and stays")
    given = parser.parse_args()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        campaign = run(given.kills, given.seed, folder, given.most_lost, given.only)
    print(summary(campaign, time.monotonic() - started))
    sys.exit(1 if campaign.violations else 0)


if __name__ == "__main__":
    main()
