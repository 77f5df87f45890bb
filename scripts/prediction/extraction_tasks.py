"""Texts to extract facts from, each with the JSON schema of what is asked for."""

import json
from dataclasses import dataclass
from typing import Any


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
