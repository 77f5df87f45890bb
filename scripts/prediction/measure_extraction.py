"""Measure what the forced tokens of a JSON schema are worth when facts are extracted from texts.

Run: `python -m scripts.prediction.measure_extraction MODEL [--draft lookup] [--tokens 400]`.

Each answer is decoded under its schema plainly and then drafted, in one process; rates are those of
decoding. Ids must be the same. A small model extracts few facts well: only its speed is measured,
with the tokens that it does write. Acceptance is unknown at the start, as in a home of its own.
"""

import argparse
import os
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.reply import Reply, new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings
from scripts.prediction.extraction_tasks import EXTRACTIONS, Extraction

_CONTEXT = 1024
_GREEDY = SamplingSettings(0.0)


def main() -> None:
    """Extract from each text plainly and drafted, and print rates and their geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", default="lookup", help="drafters beside the grammar")
    parser.add_argument("--tokens", type=int, default=400, help="most of each answer")
    names = list(EXTRACTIONS)
    parser.add_argument("--texts", nargs="+", default=names, choices=names)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ[HOME_VARIABLE] = home
        options = SessionOptions(str(arguments.model), draft="off", ctx=_CONTEXT, offline=True)
        with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
            gains = [_measure(session, name, arguments) for name in arguments.texts]
    mean = statistics.geometric_mean(gains)
    print(f"geometric mean: {mean:.2f} × plain constrained decoding (least {min(gains):.2f})")


def _measure(session: Session, name: str, arguments: argparse.Namespace) -> float:
    """Extract from one text in both ways; prints what came of it."""
    session.redraft("off", lambda _: None)
    plain = _extracted(session, EXTRACTIONS[name], arguments.tokens)
    session.redraft(arguments.draft, lambda _: None)
    drafted = _extracted(session, EXTRACTIONS[name], arguments.tokens)
    gain = _rate(drafted) / _rate(plain)
    difference = "" if plain.token_ids == drafted.token_ids else "other ids"
    by_drafter = {
        drafter: f"{counts.accepted} of {counts.drafted}"
        for drafter, counts in drafted.statistics.by_drafter.items()
    }
    print(
        f"{name}: {len(plain.token_ids)} tokens, plain {_rate(plain):.1f} tokens/s, "
        f"drafted {gain:.2f} ×, {drafted.statistics.steps} steps, accepted {by_drafter}"
        f"{difference and ', '}{difference}",
        flush=True,
    )
    return gain


def _extracted(session: Session, task: Extraction, tokens: int) -> Reply:
    reply = new_reply()
    options = ReplyOptions(grammar=Grammar(GrammarKind.JSON_SCHEMA, task.schema))
    prompt, _ = session.prompt(Conversation("", [Message("user", task.question)]))
    for _ in session.stream(prompt, _GREEDY, tokens, reply, lambda: False, options):
        pass
    return reply


def _rate(reply: Reply) -> float:
    return reply.statistics.decode_tokens_per_second or 0.0


if __name__ == "__main__":
    main()
