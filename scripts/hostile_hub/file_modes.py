"""Hostile responses to requests for files."""

import gzip
import itertools
from collections.abc import Callable

from scripts.hostile_hub.mode import Lie, Mode
from scripts.hostile_hub.server import CONTENT, HostileHub, Reply, Wire

_UNREACHABLE = "cannot be reached"
_CHUNKED = {"Transfer-Encoding": "chunked"}
_ESCAPES = "\x9b2J" * 20_000


def file_modes() -> list[Mode]:
    """All modes with a hostile response to a file request."""
    return [*_names(), *_bodies(), *_slow_bodies(), *_ranges(), *_refusals(), *_redirects()]


def _stored(reply: Reply) -> Lie:
    def lie(hub: HostileHub) -> None:
        hub.on_storage = reply

    return lie


def _resolved(reply: Reply) -> Lie:
    def lie(hub: HostileHub) -> None:
        hub.on_resolve = reply

    return lie


def _cut_first(after: int, then: Reply) -> Lie:
    """The first connection ends early; what the next ones get is then's."""

    def lie(hub: HostileHub) -> None:
        count = itertools.count()

        def reply(wire: Wire) -> None:
            if next(count):
                then(wire)
            else:
                wire.head(200, {"Content-Length": str(len(CONTENT))})
                wire.send(CONTENT[:after])

        hub.on_storage = reply

    return lie


def _names() -> list[Mode]:
    def headers(**named: Callable[[HostileHub], str]) -> Lie:
        def reply(wire: Wire) -> None:
            made = {name.replace("_", "-"): value(wire.hub) for name, value in named.items()}
            if wire.method == "HEAD":
                made |= {"Content-Length": "4"}
            wire.hub.resolve_honestly(wire, made)

        return _resolved(reply)

    def climbing(_: HostileHub) -> str:
        return '"../../../outside/evil"'

    def absolute(hub: HostileHub) -> str:
        return f'"{hub.outside}/evil"'

    def other(_: HostileHub) -> str:
        return f'"{"f" * 64}"'

    def commit(_: HostileHub) -> str:
        return "../../../../outside"

    def location(hub: HostileHub) -> str:
        return f"{hub.storage}/storage/README.md"

    return [
        Mode("an ETag that climbs out", headers(ETag=climbing, X_Linked_Etag=climbing), None),
        Mode("an absolute ETag", headers(ETag=absolute, X_Linked_Etag=absolute), None),
        Mode("another ETag", headers(ETag=other, X_Linked_Etag=other), None),
        Mode("a commit that climbs out", headers(X_Repo_Commit=commit), None),
        Mode("a Xet file of its own", headers(X_Xet_Hash=other, X_Xet_Refresh_Route=other), None),
        Mode("another file's place", headers(Location=location), "7 bytes where"),
        Mode("a name to save as", _stored(_named_attachment), None),
    ]


def _named_attachment(wire: Wire) -> None:
    named = {"Content-Disposition": 'attachment; filename="../../../../outside/evil"'}
    wire.answer(200, CONTENT, named)


def _bodies() -> list[Mode]:
    def answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Lie:
        return _stored(lambda wire: wire.answer(status, body, headers))

    def unframed(body: bytes, repeat: int | None = 1) -> Lie:
        """A body that ends with the connection."""

        def reply(wire: Wire) -> None:
            wire.head(200)
            for _ in itertools.repeat(0) if repeat is None else range(repeat):
                wire.send(body)

        return _stored(reply)

    def endless(wire: Wire) -> None:
        wire.head(200, _CHUNKED)
        for _ in itertools.count():
            wire.send(b"10000\r\n" + bytes(65_536) + b"\r\n")

    def cookies(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(CONTENT))
        wire.send(b"".join(b"Set-Cookie: a%d=b\r\n" % number for number in range(2000)))
        wire.send(b"\r\n" + CONTENT)

    two_framings = {"Content-Length": "5", **_CHUNKED}
    page = b"<html>".ljust(len(CONTENT))
    return [
        Mode("other bytes", answer(200, CONTENT[::-1]), "arrived damaged"),
        Mode("a page as long as the file", answer(200, page), "arrived damaged"),
        Mode("one wrong bit", answer(200, CONTENT[:-1] + b"\0"), "arrived damaged"),
        Mode("fewer bytes, as announced", answer(200, CONTENT[:-1]), "199999 bytes where"),
        Mode("more bytes, as announced", answer(200, CONTENT + b"x"), "200001 bytes where"),
        Mode(
            "fewer bytes, unannounced",
            unframed(CONTENT[:-1]),
            "does not resume|invalid answer|cannot be reached|ended early",
            most_bytes=4 << 20,  # where a part arrives before the connection ends, more attempts
        ),
        Mode("more bytes, unannounced", unframed(CONTENT + b"x"), "longer than the 200,000"),
        Mode("600 MB for 200 kB", unframed(bytes(6_000_000), 100), "longer than the 200,000"),
        Mode("a body that never ends", _stored(endless), "longer than the 200,000"),
        Mode("a flow that never ends", unframed(bytes(60_000), None), "longer than the 200,000"),
        Mode("no bytes", answer(200, b""), "0 bytes where"),
        Mode("compressed bytes", _gzipped(CONTENT), "compressed"),
        Mode("a compressed bomb", _gzipped(bytes(50 << 20)), "compressed"),
        Mode("length and chunks", answer(200, b"5\r\nhello\r\n0\r\n\r\n", two_framings), "5 bytes"),
        Mode("2,000 cookies", _stored(cookies), None),
        Mode("a connection that ends at once", _stored(lambda _: None), _UNREACHABLE),
    ]


def _gzipped(content: bytes) -> Lie:
    packed = gzip.compress(content, 1)
    return _stored(lambda wire: wire.answer(200, packed, {"Content-Encoding": "gzip"}))


def _slow_bodies() -> list[Mode]:
    def bytewise(wire: Wire) -> None:
        _begin(wire)
        wire.trickle(CONTENT[at : at + 1] for at in range(wire.start, len(CONTENT)))

    def headers(wire: Wire) -> None:
        wire.trickle([b"HTTP/1.1 200 OK\r\nX-A: ", *[b"a"] * 1000])

    def stalled(wire: Wire) -> None:
        _begin(wire)
        wire.send(CONTENT[wire.start :][:500])
        wire.hang()

    def modest(wire: Wire) -> None:
        """Slow, but a true connection: 40 kB/s where 2 are asked."""
        _begin(wire)
        rest = range(wire.start, len(CONTENT), 8000)
        wire.trickle((CONTENT[at : at + 8000] for at in rest), 0.05)

    slow = "less than 1.0 kB in"
    return [
        Mode("a byte now and then", _stored(bytewise), slow, True),
        Mode("headers of a file that trickle", _stored(headers), slow, True),
        Mode("a file that stands still", _stored(stalled), slow, True),
        Mode("a slow, true connection", _stored(modest), None, True),
    ]


def _begin(wire: Wire) -> None:
    """An honest head, for the rest of the file."""
    start, whole = wire.start, len(CONTENT)
    span = {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"} if start else {}
    wire.head(206 if start else 200, {"Content-Length": str(whole - start), **span})


def _ranges() -> list[Mode]:
    half, whole = 100_000, len(CONTENT)

    def partial(span: str | None, body: bytes = CONTENT[half:], status: int = 206) -> Reply:
        return lambda wire: wire.answer(
            status, body, {} if span is None else {"Content-Range": span}
        )

    def restarted(wire: Wire) -> None:
        wire.head(200, {"Content-Length": str(whole)})
        wire.send(CONTENT[:half])

    def crumbs(wire: Wire) -> None:
        _begin(wire)
        wire.send(CONTENT[wire.start :][:1])

    def changed(wire: Wire) -> None:
        """Somebody changes the part between two connections."""
        (part,) = wire.hub.blobs.glob("*.incomplete")
        part.write_bytes(bytes(half))
        wire.hub.store_honestly(wire)

    def refused(wire: Wire) -> None:
        if wire.start:
            wire.answer(416)
        else:
            restarted(wire)

    elsewhere = "resumes at another position"
    return [
        Mode("a range from another byte", _cut_first(half, partial("bytes 5-9/200000")), elsewhere),
        Mode("a range of another file", _cut_first(half, partial("bytes 100000-9/77")), elsewhere),
        Mode("a range without its place", _cut_first(half, partial(None)), elsewhere),
        Mode("a senseless range", _cut_first(half, partial("bytes */x")), elsewhere),
        Mode(
            "a range longer than asked",
            _cut_first(half, partial("bytes 100000-199999/200000", CONTENT)),
            "200000 bytes where",
        ),
        Mode("an unrequested range", _stored(partial("bytes 0-1/2", CONTENT)), "answers 206"),
        Mode("anew each time", _cut_first(half, restarted), "does not resume"),
        Mode("anew each time, refused", _stored(refused), "does not resume"),
        Mode(
            "ranges that are refused",
            _cut_first(half, lambda wire: wire.answer(416)),
            "answers 416",
        ),
        Mode("a byte for each connection", _stored(crumbs), "ended early|closed|" + _UNREACHABLE),
        Mode("a part that somebody changed", _cut_first(half, changed), "arrived damaged"),
        Mode(
            "a cut connection", _cut_first(half, lambda wire: wire.hub.store_honestly(wire)), None
        ),
    ]


def _refusals() -> list[Mode]:
    texts = {"X-Error-Message": _ESCAPES, "X-Request-Id": "\x9b31m"}

    def refusal(status: int, headers: dict[str, str] | None = None) -> Lie:
        body = b'{"error": "\x1b[2J"}'
        return _resolved(lambda wire: wire.answer(status, body, {**texts, **(headers or {})}))

    def endless(wire: Wire) -> None:
        wire.head(403, _CHUNKED)
        for _ in itertools.count():
            wire.send(b"10000\r\n" + bytes(65_536) + b"\r\n")

    def odd_reason(wire: Wire) -> None:
        wire.head(418, {"Content-Length": "0"}, "\x9b2J" * 1000)

    later = {"Retry-After": "\x9b2J" * 10_000}
    return [
        Mode("401 with escapes", refusal(401), "cannot be read"),
        Mode("403 with escapes", refusal(403), "cannot be read"),
        Mode("a gate with escapes", refusal(403, {"X-Error-Code": "GatedRepo"}), "is gated"),
        Mode("404 with escapes", refusal(404), "has no"),
        Mode("429 with escapes", refusal(429, later), "in some minutes"),
        Mode("429 for 10^30 seconds", refusal(429, {"Retry-After": "1" * 30}), "in some minutes"),
        Mode("a refusal that never ends", _resolved(endless), "answers 403"),
        Mode("an odd status", _resolved(odd_reason), "answers 418|" + _UNREACHABLE),
        Mode("a status of no kind", _resolved(lambda wire: wire.answer(799)), "799"),
        Mode("nothing to say", _resolved(lambda wire: wire.head(204)), "answers 204"),
        Mode("not changed", _resolved(lambda wire: wire.head(304)), "answers 304"),
        Mode("another protocol", _resolved(lambda wire: wire.head(101)), _UNREACHABLE),
        Mode("trouble without end", _resolved(lambda wire: wire.answer(500)), "answers 500"),
    ]


def _redirects() -> list[Mode]:
    def to(place: str) -> Lie:
        return _resolved(lambda wire: wire.answer(302, b"", {"Location": place}))

    def back_and_forth(wire: Wire) -> None:
        place = wire.hub.endpoint if wire.is_storage else wire.hub.storage
        wire.answer(307, b"", {"Location": f"{place}/again"})

    return [
        Mode("a file sent on for ever", to("/again"), "more than 5 times"),
        Mode("sent back and forth", _resolved(back_and_forth), "more than 5 times"),
        Mode("a file sent on to a file", to("file:///etc/passwd"), "cannot be used"),
        Mode("a file as data", to("data:text/plain,hello"), "cannot be used|cannot be reached"),
    ]
