"""Further texts to extract facts from, with names of other kinds in their schemas."""

from typing import Any

from scripts.prediction.extraction_tasks import NUMBER, TEXT, an_object, extractions, list_of

YES_OR_NO = {"type": "boolean"}


def one_of(*values: str) -> dict[str, Any]:
    """The schema of one of some values."""
    return {"enum": list(values)}


_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "recipe": (
        "Pancakes for four: 200 g flour, 3 eggs, 400 ml milk, a pinch of salt. Mix, rest 20 "
        "minutes, fry in butter for 2 minutes a side.",
        an_object(
            title=TEXT,
            servings=NUMBER,
            ingredients=list_of(
                an_object(
                    name=TEXT, amount=NUMBER, unit=one_of("gram", "millilitre", "piece", "pinch")
                ),
                4,
            ),
            resting_minutes=NUMBER,
            steps=list_of(TEXT, 3),
        ),
    ),
    "bug": (
        "When I open the settings dialog on Linux in version 2.3.1 and press Escape, the program "
        "crashes with a segmentation fault. It happens every time. Reported by tom@lab.example.",
        an_object(
            summary=TEXT,
            version=TEXT,
            operatingSystem=one_of("Linux", "Windows", "macOS"),
            severity=one_of("minor", "major", "critical"),
            isReproducible=YES_OR_NO,
            reporterEmail=TEXT,
            stepsToReproduce=list_of(TEXT, 2),
        ),
    ),
    "flight": (
        "Flight LX 318 leaves Zurich at 07:10 on 4 June and lands at London Heathrow at 08:00. "
        "Seat 14C, one checked bag, booked by Paul Meier.",
        an_object(
            passenger=TEXT,
            flight=an_object(
                number=TEXT,
                date=TEXT,
                departure=an_object(airport=TEXT, time=TEXT),
                arrival=an_object(airport=TEXT, time=TEXT),
            ),
            seat=TEXT,
            checked_bags=NUMBER,
        ),
    ),
    "books": (
        "On the shelf: Moby Dick by Herman Melville (1851), Emma by Jane Austen (1815), Dracula "
        "by Bram Stoker (1897).",
        an_object(
            books=list_of(
                an_object(title=TEXT, author_first_name=TEXT, author_last_name=TEXT, year=NUMBER), 3
            )
        ),
    ),
    "meeting": (
        "Meeting on Tuesday at 10 in room 204 about the budget. Anna presents the figures, Ben "
        "takes the minutes, Carla joins by phone. It should take an hour.",
        an_object(
            subject=TEXT,
            weekday=TEXT,
            start_hour=NUMBER,
            duration_in_minutes=NUMBER,
            room_number=NUMBER,
            participants=list_of(
                an_object(name=TEXT, role_in_meeting=TEXT, attends_remotely=YES_OR_NO), 3
            ),
        ),
    ),
    "patient": (
        "Patient 3391, male, 54, complains of chest pain since yesterday. Blood pressure 150 over"
        " 95, pulse 88. Allergic to penicillin. ECG ordered.",
        an_object(
            patient_id=NUMBER,
            sex=one_of("male", "female", "other"),
            age=NUMBER,
            chief_complaint=TEXT,
            blood_pressure=an_object(systolic=NUMBER, diastolic=NUMBER),
            pulse=NUMBER,
            allergies=list_of(TEXT, 1),
            ordered_tests=list_of(TEXT, 1),
        ),
    ),
    "tool": (
        "What is the weather in Lisbon tomorrow, in degrees Celsius?",
        an_object(
            name=one_of("get_weather_forecast"),
            arguments=an_object(
                city=TEXT,
                days_ahead=NUMBER,
                temperature_unit=one_of("celsius", "fahrenheit"),
                include_hourly=YES_OR_NO,
            ),
        ),
    ),
    "review": (
        "I bought this kettle in March. It boils fast and looks good, but the lid is loose and "
        "the cable too short. Three stars of five. I would not buy it again.",
        an_object(
            productType=TEXT,
            rating=NUMBER,
            positiveAspects=list_of(TEXT, 2),
            negativeAspects=list_of(TEXT, 2),
            wouldBuyAgain=YES_OR_NO,
            sentiment=one_of("positive", "mixed", "negative"),
        ),
    ),
    "server_config": (
        "The web server listens on port 8443 with TLS, serves files from /srv/www, keeps at most "
        "200 connections and writes logs to /var/log/web.log at level info.",
        an_object(
            listen_port=NUMBER,
            tls_enabled=YES_OR_NO,
            document_root=TEXT,
            maximum_connections=NUMBER,
            logging=an_object(
                file_path=TEXT, log_level=one_of("debug", "info", "warning", "error")
            ),
        ),
    ),
    "house": (
        "For sale: house in Oak Street 5, Bern, 6 rooms, 140 square metres, built 1962, garden, "
        "garage, 1.2 million francs. Contact Ms Weber, 031 555 12 12.",
        an_object(
            address=an_object(street=TEXT, city=TEXT),
            number_of_rooms=NUMBER,
            living_area_square_metres=NUMBER,
            year_of_construction=NUMBER,
            has_garden=YES_OR_NO,
            has_garage=YES_OR_NO,
            contact=an_object(name=TEXT, phone=TEXT),
        ),
    ),
    "sensors": (
        "Sensor A: 21.5 degrees, humidity 40, battery 88. Sensor B: 19.0 degrees, humidity 55, "
        "battery 12. Sensor C: offline.",
        an_object(
            readings=list_of(
                an_object(
                    sensor_id=TEXT,
                    status=one_of("online", "offline"),
                    temperature_tenths_of_degree=NUMBER,
                    relative_humidity_percent=NUMBER,
                    battery_level_percent=NUMBER,
                ),
                3,
            )
        ),
    ),
    "spans": (
        "Dr Lee of Acme Labs met President Ortega in Quito on Friday.",
        an_object(
            entities=list_of(
                an_object(text=TEXT, type=one_of("PERSON", "ORGANIZATION", "LOCATION", "DATE")), 4
            )
        ),
    ),
}

FURTHER_EXTRACTIONS = extractions(_ASKED)
"""By name."""
