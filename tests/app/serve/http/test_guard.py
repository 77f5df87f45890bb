"""Who may ask: not web pages, not under foreign names, not without the key."""

import pytest

pytest.importorskip("uvicorn")

from app.serve.incoming import Guard
from app.serve.refusal import RefusedError
from app.serve.server_options import ServerOptions
from backends.base import UsageError
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.served_engine import CHAT, HI, JSON, post, send

KEY = "a-key-that-is-long-enough"


def status(guard: Guard, path: str = "/v1/models", **headers: str) -> int:
    """The status of a refusal, 200 without one."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        guard.check(path, named)
    except RefusedError as refusal:
        return refusal.kind.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("localhost:8377", 200),
        ("LOCALHOST:8377", 200),
        ("127.0.0.1:8377", 200),
        ("127.1.2.3", 200),
        ("[::1]:8377", 200),
        ("known.example:8377", 200),
        ("evil.example", 403),
        ("evil.example:8377", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("localhost:8377, evil.example", 403),
        ("localhost:evil.example", 403),
        ("[::1", 403),
        ("[::1]evil", 403),
        ("192.168.1.5", 403),
        ("0.0.0.0:8377", 403),
        ("", 403),
    ],
)
def test_a_server_of_this_machine_is_reached_under_its_names_alone(
    host: str, expected: int
) -> None:
    guard = Guard("127.0.0.1", names=frozenset({"known.example"}))
    assert status(guard, host=host) == expected


def test_a_server_of_a_network_is_reached_by_address_or_by_its_name() -> None:
    guard = Guard("0.0.0.0", KEY)
    for host, expected in (("192.168.1.5:8377", 200), ("[fe80::1]", 200), ("evil.example", 403)):
        assert status(guard, host=host, authorization=f"Bearer {KEY}") == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:8377", 200),
        ("http://localhost:3000", 403),
        ("https://localhost:8377", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost:8377.evil.example", 403),
    ],
)
def test_pages_from_elsewhere_are_refused(origin: str, expected: int) -> None:
    assert status(Guard("127.0.0.1"), host="localhost:8377", origin=origin) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": f"Bearer {KEY}"}, 200),
        ({"authorization": f"bearer  {KEY}"}, 200),
        ({"x_api_key": KEY}, 200),
        ({}, 401),
        ({"authorization": f"Bearer {KEY}x"}, 401),
        ({"authorization": f"Bearer {KEY[:-1]}"}, 401),
        ({"authorization": KEY}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"x_api_key": "schlüssel-schlüssel"}, 401),
    ],
)
def test_a_key_is_asked_for_once_there_is_one(headers: dict[str, str], expected: int) -> None:
    assert status(Guard("127.0.0.1", KEY), host="localhost", **headers) == expected
    assert status(Guard("127.0.0.1"), host="localhost", **headers) == 200


def test_the_name_is_checked_before_the_key_and_health_needs_none() -> None:
    guard = Guard("127.0.0.1", KEY)
    assert status(guard, host="evil.example", authorization=f"Bearer {KEY}") == 403
    assert status(guard, "/health", host="localhost") == 200
    assert status(guard, "/health", host="evil.example") == 403
    assert status(guard, "/metrics", host="localhost") == 401


def test_other_machines_are_served_only_with_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.com"):
        with pytest.raises(UsageError, match="needs a key"):
            ServerOptions(host, 0)
        assert ServerOptions(host, 0, KEY).key == KEY
    assert ServerOptions("::1", 0).host == "::1"


def test_a_server_refuses_in_time_and_tells_why(serve: Serve) -> None:
    model = ScriptedModel(["word"])
    server = serve(model, KEY)
    wrong = post(server, CHAT, HI, {**JSON, "Authorization": "Bearer wrong"})
    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert wrong.headers["www-authenticate"] == "Bearer"
    rebound = post(server, CHAT, HI, {**JSON, "Host": "evil.example", "x-api-key": KEY})
    assert rebound.status == 403
    page = post(server, CHAT, HI, {**JSON, "Origin": "https://evil.example", "x-api-key": KEY})
    assert page.status == 403
    assert send(server, "OPTIONS", CHAT, headers={"Origin": "https://evil.example"}).status == 403
    assert model.passes == 0
    right = post(server, CHAT, HI, {**JSON, "Authorization": f"Bearer {KEY}"})
    assert right.json["choices"][0]["message"]["content"] == "word"
    assert not any("access-control" in name for name in (*right.headers, *page.headers))
    assert send(server, "GET", "/health").status == 200
