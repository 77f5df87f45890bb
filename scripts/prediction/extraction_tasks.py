"""Texts to extract facts from, each with the JSON schema of what is asked for."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Extraction:
    """A question about a text, and the schema of its answer."""

    question: str
    schema: str


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(item: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": most, "maxItems": most}


_TEXT = {"type": "string", "maxLength": 40}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
_ITEM = _object(
    article_number=_NUMBER, description=_TEXT, quantity=_NUMBER, unit_price_in_cents=_NUMBER
)

_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "order": (
        "Order 4711 of 3 May by Ada Keller, 12 Mill Lane, Basel: 2 lamps (article 310) at 24.90 "
        "each, 1 desk (article 77) at 189.00, 4 chairs (article 78) at 59.50 each. To be paid by "
        "invoice.",
        _object(
            order_number=_NUMBER,
            customer_name=_TEXT,
            delivery_address=_object(street_and_number=_TEXT, city=_TEXT),
            payment_method={"enum": ["invoice", "credit card", "cash on delivery"]},
            ordered_items=_list_of(_ITEM, 3),
        ),
    ),
    "weather": (
        "Station north, Monday: 14 degrees in the morning, 21 at noon, light rain, wind from the "
        "west at 20 km/h. Tuesday: 11 degrees in the morning, 17 at noon, heavy rain, wind 45.",
        _object(
            station_name=_TEXT,
            daily_observations=_list_of(
                _object(
                    day_of_week={"enum": ["Monday", "Tuesday", "Wednesday"]},
                    morning_temperature_celsius=_NUMBER,
                    noon_temperature_celsius=_NUMBER,
                    precipitation={"enum": ["none", "light rain", "heavy rain"]},
                    wind_speed_kilometres_per_hour=_NUMBER,
                ),
                2,
            ),
        ),
    ),
    "person": (
        "Maria Lopez, born in 1987 in Seville, has worked as a civil engineer for Bridges & Sons "
        "since 2015. She speaks Spanish, English and French, and can be reached at "
        "maria@bridges.example.",
        _object(
            full_name=_TEXT,
            year_of_birth=_NUMBER,
            place_of_birth=_TEXT,
            current_occupation=_TEXT,
            employer_name=_TEXT,
            employed_since_year=_NUMBER,
            spoken_languages=_list_of({"enum": ["Spanish", "English", "French", "German"]}, 3),
            email_address=_TEXT,
        ),
    ),
    "events": (
        "14:02 the pump started. 14:05 pressure was 3 bar. 14:09 the valve of line 2 failed to "
        "open. 14:10 the pump stopped, and the operator was called.",
        _object(
            logged_events=_list_of(
                _object(
                    time_of_day=_TEXT,
                    component_name=_TEXT,
                    event_description=_TEXT,
                    severity_level={"enum": ["information", "warning", "error"]},
                    requires_operator={"type": "boolean"},
                ),
                4,
            )
        ),
    ),
}

EXTRACTIONS = {
    name: Extraction(f"{text}\n\nExtract these facts as JSON.", json.dumps(schema))
    for name, (text, schema) in _ASKED.items()
}
"""By name."""
