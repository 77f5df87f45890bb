"""Measure what a prediction is worth when one line of a file changes.

Run: `python -m scripts.measure_prediction MODEL [--tokens 300] [--draft lookup]`.

A small model does not edit files by itself. So the file after the edit is the model's own greedy
continuation of the beginning of a file, and the prediction, the file before the edit, is that text
with a word of its middle line changed. Each file is written plainly, drafted without the
prediction and drafted with it, one after another in one process; rates are those of decoding. Ids
must be those of plain decoding, but for near-ties. Acceptance is unknown at the start, as in a home
of its own.
"""

import argparse
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.chat.conversation import ReplyOptions
from app.engine.reply import Reply, new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.chat_template import Prompt
from decoding.checks.greedy_check import divergences
from decoding.sampling.settings import SamplingSettings

BEGINNINGS = {
    "python": (
        '"""A shop: items, a cart, and what an order costs."""\n\n'
        "from dataclasses import dataclass, field\n\n\n"
        "@dataclass\nclass Item:\n    name: str\n    price: float\n\n\n"
        "@dataclass\nclass Cart:\n    items: list[Item] = field(default_factory=list)\n\n"
    ),
    "javascript": (
        "// A list of tasks that is kept in the browser.\n\n"
        "class Task {\n  constructor(title, due) {\n    this.title = title;\n"
        "    this.due = due;\n    this.done = false;\n  }\n}\n\nclass TaskList {\n"
    ),
    "html": (
        "<!DOCTYPE html>\n<html>\n<head>\n  <title>Our garden</title>\n</head>\n<body>\n"
        "  <h1>What grows in our garden</h1>\n  <p>"
    ),
    "settings": (
        '# Settings of the weather station\n[station]\nname = "north"\ninterval = 60\n\n'
        '[sensors.temperature]\nunit = "celsius"\nlowest = -40\nhighest = 60\n\n'
        "[sensors.wind]\n"
    ),
    "letter": (
        "Dear Ms Keller,\n\nThank you for your letter of the third of May about the repair of the "
        "roof. We have looked at the plans, and"
    ),
}
"""Text by kind of file."""


def difference(
    session: Session, prompt: Sequence[int], plain: Sequence[int], drafted: Sequence[int]
) -> str:
    """Where a drafted reply leaves the plain one, with the margin of logits; empty if nowhere.

    A tiny margin is a near-tie: passes over several tokens round differently in long texts.
    """
    if list(plain) == list(drafted):
        return ""
    with session.context.use() as context:
        for one in divergences(context, prompt, drafted):
            return f"other ids from token {one.position} on, by a margin of {one.margin:.4f}"
    return "other ids, each of which a plain pass gives too"


_CONTEXT = 1024
_GREEDY = SamplingSettings(0.0)


@dataclass(frozen=True, slots=True)
class _Edit:
    """Rates of writing one file, in units of plain decoding's."""

    file: str
    drafted: float
    predicted: float
    difference: str


def main() -> None:
    """Write each file in all three ways, and print rates and their geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=300, help="of each file")
    parser.add_argument("--draft", default="lookup", help="drafters beside the prediction")
    parser.add_argument("--files", nargs="+", default=list(BEGINNINGS), choices=list(BEGINNINGS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ[HOME_VARIABLE] = home
        options = SessionOptions(str(arguments.model), draft="off", ctx=_CONTEXT, offline=True)
        with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
            edits = [_measure(session, name, arguments) for name in arguments.files]
    drafted = statistics.geometric_mean(edit.drafted for edit in edits)
    predicted = statistics.geometric_mean(edit.predicted for edit in edits)
    least = min(edit.predicted for edit in edits)
    print(f"geometric mean: {drafted:.2f} × plain, predicted {predicted:.2f} × (least {least:.2f})")
    print(f"the same ids: {sum(not edit.difference for edit in edits)} of {len(edits)}")


def _measure(session: Session, name: str, arguments: argparse.Namespace) -> _Edit:
    """Write one file in all three ways; prints what came of it."""
    session.redraft("off", lambda _: None)
    plain = _written(session, name, arguments.tokens)
    session.redraft(arguments.draft, lambda _: None)
    drafted = _written(session, name, arguments.tokens)
    predicted = _written(session, name, arguments.tokens, before_edit(plain.text))
    edit = _Edit(
        name,
        _rate(drafted) / _rate(plain),
        _rate(predicted) / _rate(plain),
        difference(session, _prompt(session, name).tokens, plain.token_ids, predicted.token_ids),
    )
    print(
        f"{name}: {len(plain.token_ids)} tokens, plain {_rate(plain):.1f} tokens/s, "
        f"{arguments.draft} {edit.drafted:.2f} ×, predicted {edit.predicted:.2f} ×, "
        f"{predicted.statistics.steps} steps, {predicted.predicted}"
        f"{edit.difference and ', '}{edit.difference}",
        flush=True,
    )
    return edit


def _written(session: Session, name: str, tokens: int, prediction: str = "") -> Reply:
    reply, options = new_reply(), ReplyOptions(prediction=prediction)
    for _ in session.stream(_prompt(session, name), _GREEDY, tokens, reply, lambda: False, options):
        pass
    return reply


def _prompt(session: Session, name: str) -> Prompt:
    return session.raw_prompt(BEGINNINGS[name])


def _rate(reply: Reply) -> float:
    return reply.statistics.decode_tokens_per_second or 0.0


def before_edit(text: str) -> str:
    """The text with the longest word of the line in its middle replaced by another."""
    lines = text.split("\n")
    written = [number for number, line in enumerate(lines) if line.strip()]
    middle = written[len(written) // 2]
    word = max(re.findall(r"\w+", lines[middle]), key=len, default=" ")
    lines[middle] = lines[middle].replace(word, "former_value", 1)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
