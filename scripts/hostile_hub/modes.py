"""Hostile responses to requests for files."""

import gzip
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.hostile_hub.server import (
    COMMIT,
    CONTENT,
    FILE,
    HostileHub,
    Lie,
    Mode,
    Reply,
    Wire,
    digest,
)

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


_SENSELESS = "gave an invalid answer"
_LISTING_BYTES = 9 << 20
Edit = Callable[[dict[str, Any]], object]


def listing_modes() -> list[Mode]:
    """All modes with a hostile listing."""
    return [
        *_answers(),
        *_slow_answers(),
        *_listing_redirects(),
        *_sizes(),
        *_digests(),
        *_shapes(),
    ]


def _reply(reply: Reply) -> Lie:
    def lie(hub: HostileHub) -> None:
        hub.on_listing = reply

    return lie


def _body(body: bytes, headers: dict[str, str] | None = None) -> Lie:
    return _reply(lambda wire: wire.answer(200, body, headers))


def _raw(content: bytes) -> Lie:
    return _reply(lambda wire: wire.send(content))


def _edited(edit: Edit) -> Lie:
    """The honest listing after an edit, which returns another one or changes it."""

    def reply(wire: Wire) -> None:
        listing = wire.hub.listing()
        made = edit(listing)
        wire.answer(200, json.dumps(listing if made is None else made).encode())

    return _reply(reply)


def _of_model(**facts: object) -> Lie:
    """Other facts of the model's file in the listing; lfs_… of its large content."""

    def edit(listing: dict[str, Any]) -> None:
        entry = listing["siblings"][0]
        for name, value in facts.items():
            if name.startswith("lfs_"):
                entry["lfs"][name.removeprefix("lfs_")] = value
            else:
                entry[name] = value

    return _edited(edit)


def _both_sizes(size: object) -> Lie:
    return _of_model(size=size, lfs_size=size)


def _endless_chunks(wire: Wire) -> None:
    wire.head(200, _CHUNKED)
    for _ in itertools.count():
        wire.send(b"10000\r\n" + b" " * 65_536 + b"\r\n")


def _answers() -> list[Mode]:
    whole = json.dumps({"sha": "0"}).encode()
    bomb = gzip.compress(bytes(100 << 20), 1)
    return [
        Mode("a page to sign in at", _body(b"<html>sign in</html>"), _SENSELESS),
        Mode("an empty listing", _body(b""), _SENSELESS),
        Mode("a list", _body(b"[]"), _SENSELESS),
        Mode("null", _body(b"null"), _SENSELESS),
        Mode("bytes that are no text", _body(b"\xff\xfe\xfa" * 9), _SENSELESS),
        Mode("lists 100,000 deep", _body(b"[" * 100_000 + b"]" * 100_000), "nested too deep"),
        Mode("objects 100,000 deep", _body(b'{"a":' * 100_000), "nested too deep"),
        Mode("a listing that never ends", _reply(_endless_chunks), "longer", False, _LISTING_BYTES),
        Mode("a listing of 64 MB", _body(bytes(64 << 20)), "longer", False, _LISTING_BYTES),
        Mode(
            "two million empty lists",
            _body(b'{"siblings": [' + b"[]," * 2_000_000 + b"[]]}"),
            "more than 500,000 values",
            False,
            _LISTING_BYTES,
        ),
        Mode(
            "30,000 files",
            _edited(lambda listing: {**listing, "siblings": listing["siblings"] * 15_000}),
            "more than 20,000 files",
            False,
            _LISTING_BYTES,
        ),
        Mode(
            "5,000 quantizations with long names",
            _edited(lambda listing: {**listing, "siblings": _many(listing["siblings"][0])}),
            "it has .* and 4,99[0-9] more",
            False,
            _LISTING_BYTES,
        ),
        Mode("a gzip bomb", _body(bomb, {"Content-Encoding": "gzip"}), "compressed"),
        Mode("gzip in gzip", _body(bomb, {"Content-Encoding": "gzip, gzip"}), "compressed"),
        Mode("unknown compression", _body(b"x", {"Content-Encoding": "zpaq"}), "compressed"),
        Mode("a header of a megabyte", _body(b"{}", {"X-A": "a" * (1 << 20)}), "cannot be reached"),
        Mode(
            "100,000 headers",
            _body(b"{}", {f"X-{number}": "a" for number in range(100_000)}),
            "cannot be reached",
            False,
            2 << 20,
        ),
        Mode("fewer bytes than announced", _raw(_head(1000) + whole), "cannot be reached"),
        Mode("more bytes than announced", _raw(_head(3) + whole), _SENSELESS),
        Mode("no number as length", _raw(_head("ten") + whole), "cannot be reached"),
        Mode("a length below 0", _raw(_head(-5) + whole), "cannot be reached"),
        Mode("two lengths", _raw(_head("5\r\nContent-Length: 9") + whole), "cannot be reached"),
        Mode("a chunk without a size", _raw(_CHUNKED_HEAD + b"zz\r\n"), "cannot be reached"),
        Mode("no HTTP", _raw(b"SSH-2.0-OpenSSH\r\n"), "cannot be reached"),
        Mode("nothing at all", _raw(b""), "cannot be reached"),
    ]


def _many(model: dict[str, Any]) -> list[object]:
    return [{**model, "rfilename": f"{number}{'x' * 180}.gguf"} for number in range(5000)]


_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _head(length: object) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()


def _slow_answers() -> list[Mode]:
    def headers(wire: Wire) -> None:
        wire.trickle([b"HTTP/1.1 200 OK\r\nX-A: ", *[b"a"] * 1000])

    def body(wire: Wire) -> None:
        wire.head(200, {"Content-Length": "100000"})
        wire.trickle([b" "] * 1000)

    def extension(wire: Wire) -> None:
        wire.head(200, _CHUNKED)
        wire.trickle([b"5;a=", *[b"a"] * 1000])

    def unframed(wire: Wire) -> None:
        wire.head(200)
        wire.trickle([b" "] * 1000)

    def informational(wire: Wire) -> None:
        wire.trickle([b"HTTP/1.1 103 Early\r\n\r\n"] * 1000, 0.01)

    slow = "less than 1.0 kB in"
    return [
        Mode("headers that trickle", _reply(headers), slow, True),
        Mode("a listing that trickles", _reply(body), slow, True),
        Mode("a chunk's size that trickles", _reply(extension), slow, True),
        Mode("a listing without a length that trickles", _reply(unframed), slow, True),
        Mode("hints without end", _reply(informational), slow, True),
        Mode("a silent hub", _reply(Wire.hang), slow, True),
    ]


def _listing_redirects() -> list[Mode]:
    def to(location: str | Callable[[HostileHub], str]) -> Lie:
        def reply(wire: Wire) -> None:
            if wire.is_storage:
                wire.hub.list_honestly(wire)
                return
            place = location if isinstance(location, str) else location(wire.hub)
            wire.answer(302, b"", {"Location": place})

        return _reply(reply)

    def endless(wire: Wire) -> None:
        wire.head(302, {"Location": f"{wire.hub.storage}/api/x", **_CHUNKED})
        for _ in itertools.count():
            wire.send(b"10000\r\n" + b" " * 65_536 + b"\r\n")

    def elsewhere(hub: HostileHub) -> str:
        return f"{hub.storage}/api/models"

    def endless_then_listing(wire: Wire) -> None:
        (wire.hub.list_honestly if wire.is_storage else endless)(wire)

    nowhere = "cannot be used|cannot be reached"
    return [
        Mode("sent on for ever", to("/api/models/again"), "more than 5 times"),
        Mode("sent on to a file", to("file:///etc/passwd"), nowhere),
        Mode("sent on to FTP", to("ftp://127.0.0.1/x"), nowhere),
        Mode("sent on to a script", to("javascript:alert(1)"), nowhere),
        Mode("sent on to no port", to("http://127.0.0.1:99999999/"), nowhere),
        Mode("sent on to a port of 30 digits", to(f"http://127.0.0.1:{'9' * 30}/"), _SENSELESS),
        Mode("sent on to no address", to("http://[::/"), nowhere),
        Mode("sent on without a place", _reply(lambda wire: wire.answer(302)), "answers 302"),
        Mode("sent on to another origin", to(elsewhere), None),
        Mode("sent on with an endless body", _reply(endless_then_listing), None),
    ]


def _sizes() -> list[Mode]:
    none = "invalid size"
    huge = json.dumps({"siblings": [{"rfilename": FILE, "size": 0}]}).replace("0", "9" * 5000)
    return [
        Mode("a size of 0", _both_sizes(0), "listed as empty"),
        Mode("a size below 0", _both_sizes(-1), none),
        Mode("half a byte", _both_sizes(0.5), none),
        Mode("a size as text", _both_sizes("200000"), none),
        Mode("true as size", _both_sizes(True), none),
        Mode("not a number as size", _both_sizes(float("nan")), none),
        Mode("an infinite size", _both_sizes(float("inf")), none),
        Mode("a size of 10^30", _both_sizes(10**30), none),
        Mode("a size of 5,000 digits", _body(huge.encode()), _SENSELESS),
        Mode("a size larger than the disk", _both_sizes(10**18), "needs 1000000.0 TB"),
        Mode("no size", _both_sizes(None), "holds no model"),
        Mode("two sizes of one file", _of_model(lfs_size=7), "two sizes"),
        Mode("a smaller size than the file has", _both_sizes(100_000), "200000 bytes where"),
        Mode("a larger size than the file has", _both_sizes(300_000), "200000 bytes where"),
    ]


def _digests() -> list[Mode]:
    right, none = digest(FILE, CONTENT), "its digest is invalid"
    outside = "../../../../outside/evil"

    def absolute(hub: HostileHub) -> None:
        _of_model(lfs_sha256=str(hub.outside / "evil"))(hub)

    def commit(value: object) -> Lie:
        return _edited(lambda listing: {**listing, "sha": value})

    def two_sizes(listing: dict[str, Any]) -> None:
        other = {"rfilename": "b.gguf", "size": 7, "lfs": {"sha256": right, "size": 7}}
        listing["siblings"].append(other)

    bad_commits: dict[str, object] = {
        "a path": outside,
        "half one": "0123",
        "in capitals": "A" * 40,
        "a number": int("1" * 40),
        "a list": [],
        "missing": None,
        "of 64 digits": "0" * 64,
    }
    return [
        Mode("a digest in capitals", _of_model(lfs_sha256=right.upper()), none),
        Mode("half a digest", _of_model(lfs_sha256=right[:32]), none),
        Mode("a digest of another kind", _of_model(lfs_sha256=right[:40]), none),
        Mode("a digest and a line break", _of_model(lfs_sha256=right + "\n"), none),
        Mode("no digest", _of_model(lfs_sha256=None), none),
        Mode("no digest of a small file", _of_model(lfs=None, blobId=None), none),
        Mode("a number as digest", _of_model(lfs_sha256=int("1" * 64)), none),
        Mode("a path as digest", _of_model(lfs_sha256=outside), none),
        Mode("an absolute path as digest", absolute, none),
        Mode("one digest, two sizes", _edited(two_sizes), "another size"),
        Mode("a digest of other bytes", _of_model(lfs_sha256="0" * 64), "arrived damaged"),
        *(
            Mode(f"a commit that is {what}", commit(value), "commit: its digest is invalid")
            for what, value in bad_commits.items()
        ),
    ]


def _shapes() -> list[Mode]:
    def siblings(value: object) -> Lie:
        return _edited(lambda listing: {**listing, "siblings": value})

    def added(*paths: str) -> Lie:
        """Copies of the model under other paths."""

        def edit(listing: dict[str, Any]) -> None:
            model = listing["siblings"][0]
            listing["siblings"] += [{**model, "rfilename": path} for path in paths]

        return _edited(edit)

    folder = f"{FILE}/b-Q8_0.gguf"
    return [
        Mode("files as text", siblings("a.gguf"), _SENSELESS),
        Mode("files as an object", siblings({"a": 1}), _SENSELESS),
        Mode("files as a list of texts", siblings(["a.gguf"]), _SENSELESS),
        Mode("no files", siblings(None), "holds no model"),
        Mode("a file without a name", _of_model(rfilename=None), _SENSELESS),
        Mode("a list in place of a digest", _of_model(lfs=[1]), _SENSELESS),
        Mode("the same path twice", added(FILE), "listed twice"),
        Mode("two spellings of a path", added(FILE.upper()), "two spellings|several"),
        Mode("a file that is a folder too", added(folder), "as a file and as a folder"),
        *(
            Mode(f"a path that {what}", _of_model(rfilename=path), "holds no model")
            for what, path in {
                "climbs out": "../../../../../outside/evil-Q4_K_M.gguf",
                "climbs out in the middle": "a/../../../../../../outside/evil.gguf",
                "is absolute": "/tmp/evil.gguf",
                "names a drive": "C:/evil.gguf",
                "names a drive's folder": "C:evil.gguf",
                "has backslashes": "..\\..\\..\\outside\\evil.gguf",
                "is on another machine": "//server/share/evil.gguf",
                "has an empty name": "a//evil.gguf",
                "has a dot as name": "./evil.gguf",
                "names a device": "CON.gguf",
                "names a device in a folder": "aux/evil.gguf",
                "names a stream": "evil.txt:evil.gguf",
                "ends a folder with a dot": "a./evil.gguf",
                "holds a zero": "a\0.gguf",
                "breaks the line": "a\n.gguf",
                "steers the terminal": "\x1b[2Ja.gguf",
                "turns the writing round": "a\u202efugg.gguf",
                "is no text": "a\ud800.gguf",
                "is too long": "a" * 5000 + ".gguf",
                "is too deep": "a/" * 600 + "a.gguf",
            }.items()
        ),
    ]


_DIGEST = digest(FILE, CONTENT)
_NO_FOLDER = "is not a folder of the cache"
Plant = Callable[[Path, Path], None]


def cache_modes() -> list[Mode]:
    """All modes with a hostile cache."""
    part, blob = f"blobs/{_DIGEST}.specchat.incomplete", f"blobs/{_DIGEST}"
    entry, locks = f"snapshots/{COMMIT}/{FILE}", "../.locks/models--maker--Small-GGUF"
    folders = {
        "the blobs": "blobs",
        "the refs": "refs",
        "the snapshots": "snapshots",
        "the snapshot": f"snapshots/{COMMIT}",
        "the repository": ".",
        "the repository's locks": locks,
        "the locks": "../.locks",
    }
    files = {"part": part, "blob": blob, "entry": entry, "ref": "refs/main"}
    draft = f"blobs/main-{_DIGEST[:12]}.specchat.incomplete"
    lock_file = f"{locks}/specchat-{_DIGEST}.lock"
    return [
        *(
            Mode(f"a link in place of {name}", _planted(place, _link_to_folder), _NO_FOLDER)
            for name, place in folders.items()
        ),
        *(
            Mode(f"a link out in place of the {name}", _planted(place, _link_to_file), None)
            for name, place in files.items()
        ),
        *(
            Mode(f"a broken link in place of the {name}", _planted(place, _broken_link), None)
            for name, place in files.items()
        ),
        Mode("a link out in place of the lock", _planted(lock_file, _link_to_file), "cannot write"),
        Mode("a link out in place of the ref's draft", _planted(draft, _link_to_file), None),
        Mode("a right blob outside", _planted(blob, _link_to_right_content), None),
        Mode("a part that is a second name", _planted(part, _second_name), None),
        Mode("a part of other bytes", _planted(part, _other_bytes(70_000)), "arrived damaged"),
        Mode(
            "a part as long as the file", _planted(part, _other_bytes(200_000)), "arrived damaged"
        ),
        Mode(
            "a part longer than the file", _planted(part, _other_bytes(300_000)), "arrived damaged"
        ),
        Mode("a part that is a folder", _planted(part, _folder), "cannot write"),
        Mode("a damaged blob", _planted(blob, _other_bytes(200_000)), None),
        Mode("half a blob", _planted(blob, _other_bytes(100_000)), None),
        Mode("a blob that is a folder", _planted(blob, _folder), "cannot write"),
        Mode("a damaged file in the snapshot", _planted(entry, _other_bytes(200_000)), None),
        Mode("a folder in place of the file", _planted(entry, _folder), "cannot write"),
        *([Mode("a part that is a pipe", _planted(part, _pipe), None)] if _HAS_PIPES else []),
        *([Mode("a blob that is a pipe", _planted(blob, _pipe), None)] if _HAS_PIPES else []),
        *(
            [Mode("a blob that never ends", _planted(blob, _device), None)]
            if Path("/dev/zero").exists()
            else []
        ),
    ]


_HAS_PIPES = hasattr(os, "mkfifo")


def _planted(place: str, plant: Plant) -> Lie:
    def lie(hub: HostileHub) -> None:
        path = Path(os.path.normpath(hub.blobs.parent / place))
        path.parent.mkdir(parents=True, exist_ok=True)
        plant(path, hub.outside)

    return lie


def _link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside, target_is_directory=True)


def _link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "precious")


def _link_to_right_content(path: Path, outside: Path) -> None:
    (outside / "right").write_bytes(CONTENT)
    path.symlink_to(outside / "right")


def _broken_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "evil")


def _second_name(path: Path, outside: Path) -> None:
    path.hardlink_to(outside / "precious")


def _other_bytes(length: int) -> Plant:
    def plant(path: Path, _: Path) -> None:
        path.write_bytes(bytes(length))

    return plant


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def _pipe(path: Path, _: Path) -> None:
    if sys.platform != "win32":
        os.mkfifo(path)


def _device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")
