"""Damages the text of JSON and TOML files with values that specchat never writes."""

import re
from random import Random

from scripts.fuzzing.damage import damaged

_VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+_-]*|true|false|null')
_ODD = (
    b"1" + b"0" * 400, b"-1" + b"0" * 400, b"1e400", b"-1", b"0", b"0.0", b"1e-320", b"true",
    b"null",
    b"[]", b"{}", b'""', b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"9" * 5000,
    b"9223372036854775808", b'"\\ud800"', b'"\\u0000"', b'"\xff"', b"0x" + b"f" * 6000,
    b'"' + b"a" * 5000 + b'"', b"[[[[1]]]]", b'{"a": {"a": {}}}', b"'\\'", b"1979-05-27",
    b'"../../x"',
)  # fmt: skip


def damaged_text(good: bytes, random: Random) -> bytes:
    """Replace values by odd ones, such as deep nests and long keys, or damage bytes."""
    if random.random() < 0.4:
        return damaged(good, random)
    data = good
    for _ in range(random.choice((1, 1, 2, 5))):
        places = list(_VALUE.finditer(data))
        if not places:
            break
        place = random.choice(places)
        odd = _deep(random) if random.random() < 0.1 else random.choice(_ODD)
        data = data[: place.start()] + odd + data[place.end() :]
    return data


def _deep(random: Random) -> bytes:
    depth = random.choice((33, 1000, 100_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"a.", b"")))
    return opening * depth + b"1" + closing * random.choice((0, depth))
