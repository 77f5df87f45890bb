"""Measure what the forced tokens of a JSON schema are worth when facts are extracted from texts.

Run: `python -m scripts.measure_extraction MODEL [--draft lookup] [--tokens 400]`.

Each answer is decoded under its schema plainly and then drafted, in one process; rates are those of
decoding. Ids must be the same. A small model extracts few facts well: only its speed is measured,
with the tokens that it does write. Acceptance is unknown at the start, as in a home of its own.
"""

import argparse
import json
import os
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.reply import Reply, new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class Extraction:
    """A question about a text, and the schema of its answer."""

    question: str
    schema: str


def an_object(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(item: dict[str, Any], most: int) -> dict[str, Any]:
    """The schema of a list of so many items."""
    return {"type": "array", "items": item, "minItems": most, "maxItems": most}


TEXT = {"type": "string", "maxLength": 40}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
_ITEM = an_object(
    article_number=NUMBER, description=TEXT, quantity=NUMBER, unit_price_in_cents=NUMBER
)

_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "order": (
        "Order 4711 of 3 May by Ada Keller, 12 Mill Lane, Basel: 2 lamps (article 310) at 24.90 "
        "each, 1 desk (article 77) at 189.00, 4 chairs (article 78) at 59.50 each. To be paid by "
        "invoice.",
        an_object(
            order_number=NUMBER,
            customer_name=TEXT,
            delivery_address=an_object(street_and_number=TEXT, city=TEXT),
            payment_method={"enum": ["invoice", "credit card", "cash on delivery"]},
            ordered_items=list_of(_ITEM, 3),
        ),
    ),
    "weather": (
        "Station north, Monday: 14 degrees in the morning, 21 at noon, light rain, wind from the "
        "west at 20 km/h. Tuesday: 11 degrees in the morning, 17 at noon, heavy rain, wind 45.",
        an_object(
            station_name=TEXT,
            daily_observations=list_of(
                an_object(
                    day_of_week={"enum": ["Monday", "Tuesday", "Wednesday"]},
                    morning_temperature_celsius=NUMBER,
                    noon_temperature_celsius=NUMBER,
                    precipitation={"enum": ["none", "light rain", "heavy rain"]},
                    wind_speed_kilometres_per_hour=NUMBER,
                ),
                2,
            ),
        ),
    ),
    "person": (
        "Maria Lopez, born in 1987 in Seville, has worked as a civil engineer for Bridges & Sons "
        "since 2015. She speaks Spanish, English and French, and can be reached at "
        "maria@bridges.example.",
        an_object(
            full_name=TEXT,
            year_of_birth=NUMBER,
            place_of_birth=TEXT,
            current_occupation=TEXT,
            employer_name=TEXT,
            employed_since_year=NUMBER,
            spoken_languages=list_of({"enum": ["Spanish", "English", "French", "German"]}, 3),
            email_address=TEXT,
        ),
    ),
    "events": (
        "14:02 the pump started. 14:05 pressure was 3 bar. 14:09 the valve of line 2 failed to "
        "open. 14:10 the pump stopped, and the operator was called.",
        an_object(
            logged_events=list_of(
                an_object(
                    time_of_day=TEXT,
                    component_name=TEXT,
                    event_description=TEXT,
                    severity_level={"enum": ["information", "warning", "error"]},
                    requires_operator={"type": "boolean"},
                ),
                4,
            )
        ),
    ),
}


def extractions(asked: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Extraction]:
    """The tasks of texts and schemas, by name."""
    return {
        name: Extraction(f"{text}\n\nExtract these facts as JSON.", json.dumps(schema))
        for name, (text, schema) in asked.items()
    }


EXTRACTIONS = extractions(_ASKED)
"""By name."""


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
