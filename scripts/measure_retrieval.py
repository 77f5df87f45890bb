"""Speed of retrieval on questions that were answered in an earlier chat, against plain decoding.

Run on a machine with nothing else to do:
python -m scripts.measure_retrieval MODEL [--rounds 3] [--tokens 200] [--temperature 0]

The questions are asked plain, and the answers kept as chats of a scratch history, which is indexed.
Then each is asked anew, plain and drafted in turn, so that both see the same machine.
"""

import argparse
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from app.bench.methods import Ours, Outcome
from app.chat.conversation import Conversation
from app.engine.idle_tasks import Indexing
from app.engine.session import Session
from app.engine.session_drafters import build
from app.engine.session_opening import open_session
from app.history import History
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings

QUESTIONS = (
    "Explain how a bicycle stays upright while it is moving.",
    "Write a Python function that merges two sorted lists, with an example.",
    "List ten things to check before a long journey by car.",
    "Tell a short story about a lighthouse keeper and a lost ship.",
)
PLAIN = "off"


@dataclass(slots=True)
class Total:
    """All replies of one way of decoding."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one reply."""
        found = outcome.statistics
        assert found is not None
        self.tokens += len(outcome.tokens) - 1
        self.seconds += outcome.seconds
        self.steps += found.steps
        self.drafted += found.drafted
        self.accepted += found.accepted


def first_answers(session: Session, settings: SamplingSettings, tokens: int) -> None:
    """Answer each question plain, in a chat of its own, and index the chats."""
    with closing(History.open(session.paths.history)) as history:
        for question in QUESTIONS:
            chat = history.create(session.reference.name)
            history.add(chat, "user", question)
            reply = Ours(PLAIN, session, None).reply(prompt(session, question), settings, tokens)
            tokenizer = session.model.tokenizer
            said = b"".join(map(tokenizer.piece, reply.tokens)).decode(errors="replace")
            history.add(chat, "assistant", said, "done")
    with closing(Indexing.of(session)) as indexing:
        indexing.run(lambda: True)


def prompt(session: Session, question: str) -> list[int]:
    """The question as the first one of a chat."""
    return session.prompt(Conversation("", [Message("user", question)]))[0].tokens


def measured(
    session: Session, ways: list[Ours], settings: SamplingSettings, given: argparse.Namespace
) -> Iterator[tuple[str, str, Outcome]]:
    """Every question with every way in turn: question, way and outcome."""
    for number in range(given.rounds):
        seeded = replace(settings, seed=settings.seed + 1 + number)
        for question in QUESTIONS:
            for way in ways:
                reply = way.reply(prompt(session, question), seeded, given.tokens)
                yield question, way.name, reply


def main() -> None:
    """Ask, index, ask again, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file, an MLX folder or a name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--draft", nargs="+", default=["lookup", "retrieval", "lookup,retrieval"])
    given = parser.parse_args()
    settings = SamplingSettings(temperature=given.temperature)
    with ExitStack() as stack:
        os.environ[HOME_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory())
        options = SessionOptions(given.model, draft=PLAIN, ctx=1024, threads=given.threads)
        session = open_session(options, Paths.of_this_user(), print)
        stack.callback(session.close)
        session.context.be_ready_to_draft()
        first_answers(session, settings, given.tokens)
        ways = [Ours(PLAIN, session, None)]
        for spec in given.draft:
            drafting = build(session.spec(spec), session.environment(print))
            stack.enter_context(closing(drafting))
            ways.append(Ours(spec, session, drafting.controller))
        totals = {way.name: Total() for way in ways}
        for _, name, outcome in measured(session, ways, settings, given):
            totals[name].add(outcome)
    plain = totals[PLAIN].seconds / totals[PLAIN].tokens
    for name, total in totals.items():
        share = total.accepted / total.drafted if total.drafted else math.nan
        print(
            f"{name}: {total.tokens / total.seconds:.1f} tokens per second, "
            f"{plain * total.tokens / total.seconds:.2f} x plain, "
            f"{total.tokens / total.steps:.2f} tokens per step, {share:.2f} accepted"
        )


if __name__ == "__main__":
    main()
