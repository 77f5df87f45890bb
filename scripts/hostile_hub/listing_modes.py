"""Hostile listings of a repository."""

import gzip
import itertools
import json
from collections.abc import Callable
from typing import Any

from scripts.hostile_hub.mode import Lie, Mode
from scripts.hostile_hub.server import CONTENT, FILE, HostileHub, Reply, Wire, digest

_SENSELESS = "gave an invalid answer"
_LISTING_BYTES = 9 << 20
_CHUNKED = {"Transfer-Encoding": "chunked"}
Edit = Callable[[dict[str, Any]], object]


def listing_modes() -> list[Mode]:
    """All modes with a hostile listing."""
    return [*_answers(), *_slow_answers(), *_redirects(), *_sizes(), *_digests(), *_shapes()]


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


def _redirects() -> list[Mode]:
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
