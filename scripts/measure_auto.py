"""What `auto` makes of all drafters, against prompt lookup alone and against plain decoding.

Run on a machine with nothing else to do:
python -m scripts.measure_auto MODEL [--rounds 3] [--tokens 128] [--drafts auto lookup]

First the prompts of the full suite that the quick one leaves out are answered, so that drafters
that learn know this model's way of speaking, but none of the questions that are measured; with
--asked-before those of the quick suite itself, with two other seeds at 0.8. Then the quick suite is
answered by every way in turn; of what is said there nothing is learned.
"""

import argparse
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

from app.bench.methods import Method, Methods, ours
from app.bench.results import PLAIN, Bench
from app.bench.runner import Runner
from app.bench.suites import SUITES, Task, tasks
from app.bench.wording import table
from app.chat.conversation import Conversation
from app.drafting import draft_spec
from app.engine.idle_tasks import Indexing
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.engine.session_drafters import build
from app.engine.session_opening import open_session
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings


def learn(session: Session, asked: Iterable[tuple[Task, SamplingSettings]], tokens: int) -> int:
    """Answer prompts, each in a chat of its own, index the chats, and count the tokens said."""
    count = 0
    with closing(History.open(session.paths.history)) as history:
        for task, settings in asked:
            conversation = Conversation("", [Message("user", task.turns[0])])
            reply = Reply(Request(conversation, settings, tokens))
            prompt, _ = session.prompt(reply.request)
            for _ in session.stream(prompt, reply, lambda: False):
                pass
            count += len(reply.token_ids)
            chat = history.create(session.reference.name)
            history.add(chat, "user", task.turns[0])
            history.add(chat, "assistant", reply.text, "done")
    with closing(Indexing.of(session)) as indexing:
        indexing.run(lambda: True)
    session.redraft(draft_spec.OFF, print)  # what was learned is kept then
    return count


def other_questions() -> Iterator[tuple[Task, SamplingSettings]]:
    """The prompts that the quick suite does not have."""
    measured = set(tasks(SUITES["quick"]))
    for task in tasks(SUITES["full"]):
        if task not in measured:
            yield from ((task, SamplingSettings(heat)) for heat in SUITES["quick"].temperatures)


def same_questions() -> Iterator[tuple[Task, SamplingSettings]]:
    """The prompts of the quick suite, with seeds that the bench does not use."""
    for task in tasks(SUITES["quick"]):
        yield from ((task, SamplingSettings(0.8, seed=seed)) for seed in (900_001, 900_002))


def against(bench: Bench, name: str, other: str) -> Iterator[tuple[str, list[float]]]:
    """Ratios of decode rates, reply by reply, of all replies and then by kind."""
    replies = {
        (run.method, run.kind, run.prompt, run.temperature, run.round): run for run in bench.runs
    }
    found: dict[str, list[float]] = {"all": []}
    for run in bench.runs:
        twin = replies.get((other, run.kind, run.prompt, run.temperature, run.round))
        if run.method == name and twin is not None:
            ratio = (run.tokens / run.seconds) / (twin.tokens / twin.seconds)
            found["all"].append(ratio)
            found.setdefault(f"{run.kind} at {run.temperature:g}", []).append(ratio)
    yield from found.items()


def mean_words(ratios: Iterable[float]) -> str:
    """Geometric mean with its standard error."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / len(logs)
    variance = sum((each - mean) ** 2 for each in logs) / max(len(logs) - 1, 1)
    error = math.sqrt(variance / len(logs))
    return f"{math.exp(mean):.3f} ± {math.exp(mean) * error:.3f} ({len(logs)})"


def main() -> None:
    """Learn, measure, and print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file, an MLX folder or a name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--drafts", nargs="+", default=["auto", "lookup"])
    parser.add_argument("--asked-before", action="store_true")
    given = parser.parse_args()
    suite = replace(SUITES["quick"], rounds=given.rounds, max_tokens=given.tokens, seconds=math.inf)
    with ExitStack() as stack:
        os.environ[HOME_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory())
        options = SessionOptions(given.model, draft=given.drafts[0], ctx=1024)
        session = open_session(options, Paths.of_this_user(), print)
        stack.callback(session.close)
        asked = same_questions() if given.asked_before else other_questions()
        print(f"learned from {learn(session, asked, given.tokens):,} tokens")
        ways: list[Method] = [ours(PLAIN, session, None)]
        for spec in given.drafts:
            drafting = build(session.spec(spec), session.environment(print))
            stack.enter_context(closing(drafting))
            drafting.compare(True)
            print(f"{spec}: {', '.join(drafting.names)}")
            ways.append(ours(spec, session, drafting.controller))
        runner = Runner(session, Methods(ExitStack(), ways), suite)
        for done, planned, _ in runner.run():
            print(f"{done} of {planned}", end="\r", flush=True)
        bench = runner.bench
    print(table(bench))
    for name, other in (
        (given.drafts[0], PLAIN),
        *((given.drafts[0], one) for one in given.drafts[1:]),
    ):
        for what, ratios in against(bench, name, other):
            print(f"{name} against {other}, {what}: {mean_words(ratios)}")


if __name__ == "__main__":
    main()
